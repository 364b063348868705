"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly."""
