"""How well GPUs are packed: what pods could use of them at most."""
