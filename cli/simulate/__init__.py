"""`koord simulate`: the scheduler's engine on a list of nodes and a list of pods, in memory."""
