"""Intents of other contexts carried out on the Kubernetes API, and the outcome of each."""
