"""The NodeResourceTopology of each node, with the batch resources of its NUMA zones."""
