"""Measurements of the log and of the way of a pod through the system."""
