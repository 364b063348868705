"""Compiled passes over all nodes: the arithmetic that costs time for every pod and every node.

Everything here is a pure function of arrays and numbers. A plugin states the same rule in plain integers for one node
(`filter_at`, `score_at`); tests compare both.
"""
