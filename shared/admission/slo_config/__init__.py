"""Validation of the ConfigMap slo-controller-config."""
