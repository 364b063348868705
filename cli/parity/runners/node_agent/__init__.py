"""Recorded cases of upstream's node agent as questions to ours."""
