"""The gateway: the only code that uses the Kubernetes API. README.md lists what it follows, writes and serves."""
