"""Elastic quota as a ledger: runtimes, charges, and the postings behind every number."""
