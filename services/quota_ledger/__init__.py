"""Elastic quota as a ledger: who may use how much, who does, and the postings that say why."""
