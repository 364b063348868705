"""Queries that only people run, through `koord`: what the log, its database and its followers look like now. No service imports them."""
