"""Decisions: state in, events of the `quota` context out."""
