"""The `koord` command: what a person at a terminal uses."""
