"""The quota ledger and the scheduler's half of quota, driven by the events that production would read of a recorded history."""
