"""Overcommitted resources of a node and their computation."""
