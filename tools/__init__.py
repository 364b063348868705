"""What `make` runs beside the tests; not installed."""
