"""Packing of GPUs: an upper bound of what pods can use."""
