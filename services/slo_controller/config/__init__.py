"""Configuration: the ConfigMap slo-controller-config, and the objects that are written from it."""
