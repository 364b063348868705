"""QoS strategies as pure decisions: usage and NodeSLO in, desired cgroup values and evictions out."""
