"""The status of PodGroups."""
