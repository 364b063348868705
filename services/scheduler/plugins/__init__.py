"""Scheduling plugins, one package each; every plugin evaluates all nodes at once, in integers as upstream's."""
