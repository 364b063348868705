"""What pods hold of a node's CPUs and NUMA zones.

A book is a value: adding a pod gives another book, so that a cycle can try what it likes, and equal books give equal answers.

Source: spec/scheduler-core.md 4.3; upstream pkg/scheduler/plugins/nodenumaresource/node_allocation.go.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from services.scheduler.plugins.node_numa_resource.cpu_accumulator import AllocatedCpu
from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology

Amounts = Mapping[str, int]
"""Resource -> amount: cpu in milli-cores, everything else in whole units."""


class Allocation(NamedTuple):
    """What one pod holds on its node.

    Attributes:
        cpus: CPUs that it is bound to.
        exclusive: its exclusive policy.
        zones: NUMA node -> what it holds of it, ascending.
    """

    cpus: frozenset[int] = frozenset()
    exclusive: str = ""
    zones: tuple[tuple[int, Amounts], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cpus or self.zones)


class ZoneUse(StrEnum):
    """Which pods with CPUs of their own are on a NUMA node: none, such as stay within it, such as span several."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


class CpuUsage:
    """Which CPUs are held, by how many pods; a value.

    Attributes:
        held: CPU -> holding, of those that any pod holds.
    """

    __slots__ = ("allocated",)

    def __init__(self, allocated: Mapping[int, AllocatedCpu] | None = None) -> None:
        self.allocated: Mapping[int, AllocatedCpu] = allocated or {}

    def available(self, topology: CpuTopology, max_pods: int) -> frozenset[int]:
        """CPUs of the topology that one more pod may hold."""
        return topology.all - {cpu for cpu, pod_allocation in self.allocated.items() if pod_allocation.pods >= max_pods}


class NodeUsage:
    """All that is held on one node; a value.

    Attributes:
        cpus: by CPU.
        zones: NUMA node -> amounts held of it.
        bound: NUMA node -> how many of its CPUs are held, each once.
    """

    __slots__ = ("_uses", "bound", "cpus", "zones")

    def __init__(self, topology: CpuTopology, allocations: Iterable[Allocation]) -> None:
        """Sum up the allocations, oldest first.

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

    def use(self, numa: int) -> ZoneUse:
        """Which pods with CPUs of their own are on the NUMA node."""
        spans = self._uses.get(numa)
        if not spans:
            return ZoneUse.IDLE
        return ZoneUse.SHARED if True in spans else ZoneUse.SINGLE
