"""The client of the Kubernetes API: requests, connections, credentials, errors, resources and their types."""
