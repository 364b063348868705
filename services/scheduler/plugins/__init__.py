"""Scheduling plugins: each judges all candidate nodes at once, in integers as upstream has them."""
