"""The calculation of batch and mid resources, and of device resources, for one node."""
