"""The node agent: measures a node, reports to ingest, and enforces the node's NodeSLO.

It has neither log nor Kubernetes API.
"""
