"""The fold of what the descheduler decides from."""
