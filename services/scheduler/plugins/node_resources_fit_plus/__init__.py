"""NodeResourcesFitPlus: scores by allocation, with a strategy for each resource."""
