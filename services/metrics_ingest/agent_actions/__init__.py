"""Action ingest: checks the actions of node agents against the cluster and appends them to `nodes-*`."""
