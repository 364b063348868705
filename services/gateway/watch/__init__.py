"""Observations: lists and watches of each resource, the fields that are kept, and what is appended of them."""
