"""`koord node`: overcommitted resources of a node and their computation."""
