"""Measurements of the log and of the path of a pod through the system."""
