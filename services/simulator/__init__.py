"""The simulator: a Kubernetes cluster in memory, for development, demonstrations and tests."""
