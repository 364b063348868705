"""Passes over all nodes that are compiled: the arithmetic that every pod of its own kind pays for once a node.

Everything here is a pure function of arrays and numbers. A plugin says what is computed and keeps the same rule in plain integers
for one node (`filter_at`, `score_at`), which the tests hold these against.
"""
