"""Elastic quota in a cycle: charges to the quota ledger, and preemption inside a quota."""
