"""`koord devices`: the devices of nodes, the share of them that each pod has, and what the rest can be used for."""
