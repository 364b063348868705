"""Metrics ingest: reports of node agents in, windows and percentiles out; and agents' actions."""
