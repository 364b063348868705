"""Allocation of a node's CPUs and NUMA zones to a pod.

Source: spec/scheduler-core.md 4.6; upstream pkg/scheduler/plugins/nodenumaresource/resource_manager.go.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import amplified
from services.scheduler.plugins.node_numa_resource.cpu_accumulator import NotEnoughCpus, Take, take_cpus, take_preferred
from services.scheduler.plugins.node_numa_resource.cpus_permitted_by_bind_policy import satisfies, usable_cpus
from services.scheduler.plugins.node_numa_resource.hint_combinations import Mask
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, Amounts, NodeUsage
from services.scheduler.plugins.node_numa_resource.pod_requirements import NodeRequest
from services.scheduler.plugins.node_numa_resource.topology_manager import numas_of

_NOT_ENOUGH = Rejection((Reason("NotEnoughCpus"),))

Zones = dict[int, dict[str, int]]
"""NUMA node -> amounts."""


class DrawnAllocation(NamedTuple):
    """CPUs and NUMA amounts of the Reservation that a pod uses, as far as they are left.

    Attributes:
        restricted: resources of which the pod gets no other ones.
    """

    left: Allocation
    restricted: frozenset[str] = frozenset()


NOTHING_DRAWN = DrawnAllocation(Allocation())


class NumaNode:
    """A node's options and their usage. It is immutable, so that everything derived from it is computed once.

    Attributes:
        max_pods: number of pods that may share a CPU.
        drawn: what the pod may draw on of a Reservation.
    """

    def __init__(
        self, options: NodeOptions, usage: NodeUsage, max_pods: int = 1, drawn: "DrawnAllocation | None" = None
    ) -> None:
        self.options = options
        self.usage = usage
        self.max_pods = max_pods
        self.drawn = drawn or NOTHING_DRAWN
        self._rooms: dict[str, Zones] = {}
        self._usable: dict[str, UsableCpus] = {}

    def invalid(self) -> Rejection:
        """The rejection where no CPU can be allocated, with the unreadable parts of the node's report."""
        return Rejection((Reason("InvalidCpuTopology", "; ".join(self.options.problems)[:200]),), unresolvable=True)

    @cached_property
    def allocated(self) -> Zones:
        """Allocated amounts of each zone; allocated CPUs count amplified, as the zone counts them."""
        ratio = self.options.ratios.get("cpu", 1)
        zones: Zones = {}
        for zone in self.options.zones:
            amounts = dict(self.usage.zones.get(zone.numa, {}))
            own = 1000 * self.usage.bound.get(zone.numa, 0)
            if own and ratio > 1 and zone.numa in self.usage.zones:  # else no pod's amounts are counted there
                amounts["cpu"] = amounts.get("cpu", 0) - own + amplified(own, ratio)
            zones[zone.numa] = amounts
        return zones

    @cached_property
    def free(self) -> Zones:
        """Free amounts of each zone."""
        allocated = self.allocated
        free = {
            zone.numa: {name: max(0, total - allocated[zone.numa].get(name, 0)) for name, total in zone.total.items()}
            for zone in self.options.zones
        }
        left = dict(self.drawn.left.zones)
        for name in self.drawn.restricted if left else ():
            for numa, amounts in free.items():
                if name in amounts:
                    amounts[name] = min(amounts[name], left.get(numa, {}).get(name, 0))
        return free

    @cached_property
    def free_cpus(self) -> frozenset[int] | Rejection:
        """CPUs that can be allocated; none where no topology is reported."""
        if not self.options.known:
            return frozenset()
        if not self.options.topology.valid:
            return self.invalid()
        free = self.usage.cpus.available(self.options.topology, self.max_pods) - self.options.reserved
        left = self.drawn.left.cpus
        return free & left if left and "cpu" in self.drawn.restricted else free

    def usable(self, bind: str) -> "UsableCpus":
        """The free CPUs that a required bind policy permits; all of them without one."""
        if bind not in self._usable:
            free = frozenset() if isinstance(self.free_cpus, Rejection) else self.free_cpus
            self._usable[bind] = UsableCpus(self, usable_cpus(self.options.topology, bind, free))
        return self._usable[bind]

    def room(self, request: NodeRequest) -> Zones:
        """Free amounts of each zone for a pod: of cpu only whole CPUs that its required bind policy permits."""
        if not request.required:
            return self.free
        if request.bind not in self._rooms:
            usable = self.usable(request.bind)
            self._rooms[request.bind] = zones = {numa: dict(amounts) for numa, amounts in self.free.items()}
            for numa, amounts in zones.items():
                if "cpu" in amounts:
                    amounts["cpu"] = min(amounts["cpu"], 1000 * len(usable.of(numa)))
        return self._rooms[request.bind]


class UsableCpus:
    """CPUs that may be allocated, with the cached allocations within one NUMA node."""

    def __init__(self, node: NumaNode, cpus: frozenset[int]) -> None:
        self.cpus = cpus
        self._node = node
        self._taken: dict[tuple[int, Take], frozenset[int]] = {}
        by_numa: dict[int, list[int]] = {}
        for cpu in cpus:
            by_numa.setdefault(node.options.topology.cpus[cpu].numa, []).append(cpu)
        self._by_numa = {numa: frozenset(there) for numa, there in by_numa.items()}

    def of(self, numa: int) -> frozenset[int]:
        """The CPUs of a NUMA node."""
        return self._by_numa.get(numa, frozenset())

    def take(self, numa: int, take: Take, preferred: frozenset[int]) -> frozenset[int]:
        """Takes CPUs from one NUMA node only.

        Raises:
            NotEnoughCpus: fewer are available.
        """
        node = self._node
        if preferred:
            return take_preferred(node.options.topology, take, self.of(numa), preferred, node.usage.cpus.allocated)
        key = (numa, take)
        if key not in self._taken:
            self._taken[key] = take_cpus(node.options.topology, take, self.of(numa), node.usage.cpus.allocated)
        return self._taken[key]


def allocate(node: NumaNode, request: NodeRequest, mask: Mask | None) -> Allocation | Rejection:
    """The pod's allocation with an affinity; an empty one without an affinity and without CPUs of its own."""
    zones: list[tuple[int, Amounts]] = []
    if mask is not None:
        room = node.room(request)
        shares, short = distribute(request, room, numas_of(mask), node.options.topology.cpus_per_core)
        if short:
            return Rejection(tuple(Reason("InsufficientNumaResource", name) for name in short))
        zones = sorted(shares.items())
    if not request.binds:
        return Allocation(zones=tuple(zones))
    cpus = _take(node, request, zones, node.drawn.left.cpus)
    return cpus if isinstance(cpus, Rejection) else Allocation(cpus, request.exclusive, tuple(zones))


def allocate_designated(node: NumaNode, request: NodeRequest, designated: Allocation) -> Allocation | Rejection:
    """The allocation that another component has chosen, if it is free.

    Upstream does not check that the zones still have the amounts; here they must.
    """
    free = node.free
    room = {
        numa: {name: min(size, free.get(numa, {}).get(name, 0)) for name, size in amounts.items()}
        for numa, amounts in designated.zones
    }
    shares, short = distribute(request, room, list(room), node.options.topology.cpus_per_core)
    if short:
        return Rejection(tuple(Reason("InsufficientNumaResource", name) for name in short))
    zones = sorted(shares.items())
    if not request.binds:
        return Allocation(zones=tuple(zones))
    cpus = _take(node, request, zones, designated.cpus)
    if isinstance(cpus, Rejection):
        return cpus
    return Allocation(cpus, request.exclusive, tuple(zones)) if cpus == designated.cpus else _NOT_ENOUGH


def distribute(
    request: NodeRequest, room: Zones, numas: Sequence[int], cpus_per_core: int
) -> tuple[dict[int, dict[str, int]], list[str]]:
    """Splits the requests evenly over NUMA nodes, those with the least free amount first.

    Resources that no zone has are left to other plugins.

    Returns:
        NUMA node -> amounts, and the resources that do not fit.
    """
    known = {name for amounts in room.values() for name in amounts}
    requests = request.own_requests if request.binds else request.requests
    shares: dict[int, dict[str, int]] = {}
    short: list[str] = []
    for name in sorted(requests.keys() & known):
        left = requests[name]
        ordered = _by_room([room.get(position, {}).get(name, 0) for position in range(len(numas))], numas)
        for position, numa in enumerate(ordered):
            part = _part(request, name, left, len(numas) - position, cpus_per_core)
            taken = min(part, room.get(numa, {}).get(name, 0))
            if taken > 0:
                shares.setdefault(numa, {})[name] = taken
                left -= taken
        if left > 0:
            short.append(name)
    return shares, short


def _by_room(room: Sequence[int], numas: Sequence[int]) -> list[int]:
    """NUMA nodes, the least free amount first, as upstream sorts: it compares the amounts of NUMA nodes 0, 1, ... there."""
    ordered = list(numas)
    for last in range(1, len(ordered)):
        at = last
        while at > 0 and room[at] < room[at - 1]:
            ordered[at], ordered[at - 1] = ordered[at - 1], ordered[at]
            at -= 1
    return ordered


def _part(request: NodeRequest, name: str, left: int, parts: int, cpus_per_core: int) -> int:
    if name != "cpu" or not request.binds:
        return left // parts
    cpus = left // 1000
    if request.required_bind == policy_names.FULL_CORES and cpus_per_core:
        return cpus // cpus_per_core // parts * cpus_per_core * 1000
    return cpus // parts * 1000


def _take(
    node: NumaNode, request: NodeRequest, zones: Sequence[tuple[int, Amounts]], preferred: frozenset[int] = frozenset()
) -> frozenset[int] | Rejection:
    topology = node.options.topology
    if isinstance(node.free_cpus, Rejection):
        return node.free_cpus
    usable = node.usable(request.required_bind)
    if len(usable.cpus) < request.cpus:
        return _NOT_ENOUGH
    take = Take(request.cpus, request.bind, request.exclusive, request.strategy, node.max_pods)
    try:
        if not zones:
            taken = take_preferred(topology, take, usable.cpus, preferred, node.usage.cpus.allocated)
        else:
            taken = frozenset()
            for numa, amounts in zones:
                need = min(amounts.get("cpu", 0) // 1000, len(usable.of(numa)))
                taken |= usable.take(numa, take._replace(need=need), preferred)
            if len(taken) != request.cpus:
                return _NOT_ENOUGH
    except NotEnoughCpus:
        return _NOT_ENOUGH
    if request.required and not satisfies(topology, request.bind, taken):
        return Rejection((Reason("CpuBindPolicyUnsatisfied", request.bind),))
    return taken
