"""Programs of `make` besides the tests; not installed."""
