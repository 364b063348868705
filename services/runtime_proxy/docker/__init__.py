"""Docker in place of a runtime with CRI: the same hooks in requests of its HTTP API."""
