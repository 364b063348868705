"""Metrics ingest and action ingest: reports and actions of node agents in, events of `metrics-*` and `nodes-*` out."""
