"""Action ingest: what node agents did, or ask for, checked against the cluster and appended to `nodes-*`."""
