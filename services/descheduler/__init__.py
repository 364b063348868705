"""The descheduler: which pods should leave their nodes, and where each of them goes."""
