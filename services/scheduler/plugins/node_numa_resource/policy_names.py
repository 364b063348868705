"""Policies of pods, nodes and arguments: CPU binding, exclusion, NUMA affinity and allocation strategy.

Source: spec/scheduler-core.md 4.2; upstream apis/extension/numa_aware.go.
"""

FULL_CORES = "FullPCPUs"
SPREAD = "SpreadByPCPUs"
DEFAULT_BIND = "Default"

CORE_EXCLUSIVE = "PCPULevel"
NUMA_EXCLUSIVE = "NUMANodeLevel"

MOST = "MostAllocated"
LEAST = "LeastAllocated"

NODE_FULL_CORES = "FullPCPUsOnly"
NODE_SPREAD = "SpreadByPCPUs"
NODE_NONE = "None"

BEST_EFFORT = "BestEffort"
RESTRICTED = "Restricted"
SINGLE_NUMA = "SingleNUMANode"
FIXED = (RESTRICTED, SINGLE_NUMA)
"""Policies by which the filter decides the affinity; that of BestEffort is decided for the chosen node alone."""
NUMA_POLICIES = ("", BEST_EFFORT, RESTRICTED, SINGLE_NUMA)

REQUIRED = "Required"
