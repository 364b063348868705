"""Required bind policies: the CPUs that one permits, and the check of a set of CPUs.

Source: spec/scheduler-core.md 4.6; upstream
pkg/scheduler/plugins/nodenumaresource/{cpu_accumulator,resource_manager}.go.
"""

from collections.abc import Set as AbstractSet

from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology
from services.scheduler.plugins.node_numa_resource.policy_names import FULL_CORES, SPREAD


def usable_cpus(topology: CpuTopology, policy: str, available: AbstractSet[int]) -> frozenset[int]:
    """The permitted CPUs: of whole cores only, or the lowest of each core; all without such a policy."""
    if policy == FULL_CORES:
        return frozenset(cpu for cpus in topology.fully_free_cores(available).values() for cpu in cpus)
    if policy == SPREAD:
        return frozenset(cpus[0] for cpus in topology.by_core(available).values())
    return frozenset(available)


def satisfies(topology: CpuTopology, policy: str, cpus: AbstractSet[int]) -> bool:
    """Returns True where the set fills the cores it touches, or touches each only once."""
    cores = len({topology.cpus[cpu].core for cpu in cpus})
    if policy == FULL_CORES:
        return cores * topology.cpus_per_core == len(cpus)
    return policy != SPREAD or cores == len(cpus)
