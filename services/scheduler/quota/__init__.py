"""Elastic quota in the scheduler: the followed view of the ledger, charges of a cycle, preemption inside a quota."""
