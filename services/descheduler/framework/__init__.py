"""Cycles of plugins, and the limits that hold for all of them."""
