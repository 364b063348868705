"""Koordinator's labels, annotations and resource names: pure functions on the stored objects."""
