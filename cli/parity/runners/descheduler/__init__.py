"""Runs recorded cases of the descheduler's plugins."""
