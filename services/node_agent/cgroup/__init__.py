"""Cgroup files: their names and values in both versions, and how they are written."""
