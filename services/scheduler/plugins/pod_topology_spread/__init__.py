"""PodTopologySpread: spreads the pods of a selector evenly over the domains of a topology key."""
