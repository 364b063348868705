"""The agent as a hook server of a runtime proxy."""
