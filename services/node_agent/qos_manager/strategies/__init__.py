"""QoS strategies as pure decisions: what was measured and what is asked for in, wanted cgroup values and evictions out."""
