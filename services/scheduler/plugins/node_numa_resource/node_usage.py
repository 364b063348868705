"""Usage of a node's CPUs and NUMA zones by its pods.

It is immutable: one more pod makes a new NodeUsage, so that a cycle can try allocations, and equal usages have equal
results.

Source: spec/scheduler-core.md 4.3; upstream pkg/scheduler/plugins/nodenumaresource/node_allocation.go.
"""

from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from services.scheduler.plugins.node_numa_resource.cpu_accumulator import AllocatedCpu
from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology

Amounts = Mapping[str, int]
"""Resource -> amount: cpu in milli-cores, everything else in whole units."""


class Allocation(NamedTuple):
    """CPUs and NUMA amounts of one pod on its node.

    Attributes:
        cpus: CPUs that it is bound to.
        exclusive: its exclusive policy.
        zones: NUMA node -> amounts, ascending.
    """

    cpus: frozenset[int] = frozenset()
    exclusive: str = ""
    zones: tuple[tuple[int, Amounts], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cpus or self.zones)


class ZoneUse(StrEnum):
    """Pods with CPUs of their own on a NUMA node: none, only pods within it, or pods that span several."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


class CpuUsage:
    """The allocated CPUs; immutable.

    Attributes:
        allocated: CPU -> its pods, of those that any pod has.
    """

    __slots__ = ("allocated",)

    def __init__(self, allocated: Mapping[int, AllocatedCpu] | None = None) -> None:
        self.allocated: Mapping[int, AllocatedCpu] = allocated or {}

    def available(self, topology: CpuTopology, max_pods: int) -> frozenset[int]:
        """CPUs of the topology that can be allocated to one more pod."""
        return topology.all - {cpu for cpu, pod_allocation in self.allocated.items() if pod_allocation.pods >= max_pods}


class NodeUsage:
    """All allocations of one node; immutable.

    Attributes:
        cpus: by CPU.
        zones: NUMA node -> allocated amounts.
        bound: NUMA node -> number of its allocated CPUs, each counted once.
    """

    __slots__ = ("_uses", "bound", "cpus", "zones")

    def __init__(self, topology: CpuTopology, allocations: Iterable[Allocation]) -> None:
        """Sums up the allocations, oldest first.

        As upstream has it, nothing is tracked on a node without a valid CPU topology.
        """
        allocated: dict[int, AllocatedCpu] = {}
        self.zones: dict[int, dict[str, int]] = {}
        self._uses: dict[int, set[bool]] = {}
        for allocation in allocations if topology.valid else ():
            for cpu in allocation.cpus:
                allocated[cpu] = AllocatedCpu(allocated[cpu].pods + 1 if cpu in allocated else 1, allocation.exclusive)
            for numa, amounts in allocation.zones:
                zone = self.zones.setdefault(numa, {})
                for resource, amount in amounts.items():
                    zone[resource] = zone.get(resource, 0) + amount
            numas = {topology.cpus[cpu].numa for cpu in allocation.cpus if cpu in topology.cpus}
            for numa in sorted(numas):
                self._uses.setdefault(numa, set()).add(len(numas) > 1)
        self.cpus = CpuUsage(allocated)
        self.bound: dict[int, int] = {}
        for cpu in allocated:
            if cpu in topology.cpus:
                numa = topology.cpus[cpu].numa
                self.bound[numa] = self.bound.get(numa, 0) + 1

    def key(self) -> Hashable:
        """A key that is equal for equal usages."""
        return (
            frozenset(self.cpus.allocated.items()),
            tuple(sorted((numa, tuple(sorted(amounts.items()))) for numa, amounts in self.zones.items())),
            tuple(sorted((numa, tuple(sorted(spans))) for numa, spans in self._uses.items())),
        )

    def use(self, numa: int) -> ZoneUse:
        """The use of the NUMA node by pods with CPUs of their own."""
        spans = self._uses.get(numa)
        if not spans:
            return ZoneUse.IDLE
        return ZoneUse.SHARED if True in spans else ZoneUse.SINGLE
