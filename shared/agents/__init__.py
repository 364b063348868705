"""The protocol between node agents and ingest: subjects, reports, actions, NodeSLO. Both sides import it.

It belongs to neither.
"""
