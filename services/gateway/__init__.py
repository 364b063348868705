"""The gateway: the only code that speaks to the Kubernetes API. README.md says what it follows, writes and answers."""
