"""The quota ledger and the scheduler's half of quota, driven by recorded histories as production would read them."""
