"""Admission of ElasticQuota objects, and of pods into a quota."""
