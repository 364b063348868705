"""CPUs and NUMA zones of nodes: which a pod may have, which it gets, and what is left."""
