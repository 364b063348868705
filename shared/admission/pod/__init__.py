"""Admission of pods: profiles, resources, QoS classes and quota."""
