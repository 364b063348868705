"""The node agent: measures a node, reports to ingest, holds the node's NodeSLO. Knows no log and no Kubernetes object."""
