"""Removal of the objects and fields that this system has written, from a cluster that it leaves."""
