"""Quotas for people: the tree of quotas with its numbers, and how each came about, from the log alone."""
