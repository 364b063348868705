"""A pod against one node: may it run there, how good would that be, and what does it get.

Source: spec/scheduler-core.md 4.5, 4.8 to 4.10; upstream pkg/scheduler/plugins/nodenumaresource/{plugin,scoring,topology_hint}.go.
"""

from typing import Protocol

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.node_numa_resource import policies
from services.scheduler.plugins.node_numa_resource.allocation import NumaNode, allocate, allocate_designated
from services.scheduler.plugins.node_numa_resource.amplification import amplified
from services.scheduler.plugins.node_numa_resource.hint_combinations import Hint, Mask
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, Amounts
from services.scheduler.plugins.node_numa_resource.pod_requirements import Demand, Refused, Wanted, wanted
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies, score
from services.scheduler.plugins.node_numa_resource.topology_hints import hints_of
from services.scheduler.plugins.node_numa_resource.topology_manager import Merged, merge

MOST_NUMAS = 64
"""NUMA nodes are numbered from 0 to below this; a report with other numbers is of no use."""


class Amounted(Protocol):
    """A node's amounts as a whole: allocatable, and what its pods request."""

    @property
    def allocatable(self) -> Amounts: ...  # noqa: D102

    @property
    def requested(self) -> Amounts: ...  # noqa: D102


class Cycle:
    """One pod against one node.

    Attributes:
        want: what it wants there.
        policy: NUMA policy of both; a refusal when they differ.
    """

    def __init__(self, demand: Demand, node: NumaNode, strategies: Strategies) -> None:
        self.demand = demand
        self.node = node
        self.strategies = strategies
        self.want: Wanted = wanted(demand, node.options, strategies.of_zones)
        self.policy = self._policy()
        self._admitted: Hint | Refused | None = None
        self._got: dict[Mask | None, Allocation | Refused] = {}

    def _policy(self) -> str | Refused:
        own, theirs = self.demand.numa_policy, self.node.options.numa_policy
        for policy in (own, theirs):
            if policy not in policies.NUMA_POLICIES:
                return Refused((Reason("UnknownNumaPolicy", policy[:64]),), unresolvable=True)
        if own and theirs and own != theirs:
            return Refused((Reason("NumaPolicyMismatch"),), unresolvable=True)
        return own or theirs

    @property
    def is_fractional(self) -> bool:
        """Whether the pod is to have CPUs of its own and asks for a part of one."""
        return self.want.binds and self.demand.requests["cpu"] % 1000 > 0

    @property
    def allocates(self) -> bool:
        """Whether what the pod gets is kept: it or the node asks for CPUs of its own or for a NUMA policy."""
        return self.want.binds or bool(self.policy)

    def filter(self, whole: Amounted) -> Refused | None:
        """Why the node may not take the pod; None when it may."""
        if isinstance(self.policy, Refused):
            return self.policy
        if self.demand.designated is not None:
            got = self._allocate(None)
            return got if isinstance(got, Refused) else None
        if self.is_fractional:
            return Refused((Reason("CpuNotInteger"),), unresolvable=True)
        refused = self._filter_amplified(whole)
        if refused is not None:
            return refused
        if self.want.binds:
            refused = self._filter_cpus()
            if refused is not None:
                return refused
            if self.want.required and not self.policy:
                tried = self._allocate(None)
                return tried if isinstance(tried, Refused) else None
        if self.policy in (policies.RESTRICTED, policies.SINGLE_NUMA):
            affinity = self.admit()
            return affinity if isinstance(affinity, Refused) else None
        return None

    def _filter_amplified(self, whole: Amounted) -> Refused | None:
        options = self.node.options
        ratio = options.node_ratios.get("cpu", 1)
        asked = self.demand.requests.get("cpu", 0)
        if ratio <= 1 or not asked:
            return None
        if options.known and not options.topology.valid:
            return self.node.invalid()
        need = amplified(asked, ratio) if self.want.binds else asked
        used = whole.requested.get("cpu", 0)
        own = 1000 * len(self.node.book.cpus.held)
        if own and used >= own:
            used += amplified(own, ratio) - own
        lacks = need > whole.allocatable.get("cpu", 0) - used
        return Refused((Reason("InsufficientAmplifiedCpu"),)) if lacks else None

    def _filter_cpus(self) -> Refused | None:
        options = self.node.options
        if not options.topology.valid:
            return self.node.invalid()
        by_node = {policies.NODE_FULL_CORES: policies.FULL_CORES, policies.NODE_SPREAD: policies.SPREAD}
        theirs = by_node.get(options.bind_policy, "")
        if self.demand.required and theirs and self.demand.required != theirs:
            return Refused((Reason("CpuBindPolicyConflict"),), unresolvable=True)
        if self.want.required_bind == policies.FULL_CORES and self.want.cpus % options.topology.cpus_per_core:
            return Refused((Reason("CpusNotWholeCores"),), unresolvable=True)
        return None

    def admit(self) -> Hint | Refused:
        """The NUMA affinity that the topology manager gives, once what comes of it has been tried."""
        if self._admitted is None:
            self._admitted = self._admit()
        return self._admitted

    def _admit(self) -> Hint | Refused:
        assert isinstance(self.policy, str), "policies that differ are refused before"
        zones = self.node.options.zones
        if not zones or any(not 0 <= zone.numa < MOST_NUMAS for zone in zones):
            return Refused((Reason("MissingNumaResources"),), unresolvable=True)
        # A single NUMA node is found among the hints for one; the others are needed only to say why there is none.
        merged = self._merge(1) if self.policy == policies.SINGLE_NUMA else self._merge()
        if isinstance(merged, Merged) and not merged.admitted and self.policy == policies.SINGLE_NUMA:
            merged = self._merge()
        if isinstance(merged, Refused):
            return merged
        if not merged.admitted:
            unsatisfied = tuple(Reason("UnsatisfiedNuma", name) for name in merged.unsatisfied)
            return Refused(unsatisfied or (Reason("UnalignedNuma", merged.unaligned),))
        tried = self._allocate(merged.best.mask)
        return tried if isinstance(tried, Refused) else merged.best

    def _merge(self, widest: int = 64) -> Merged | Refused:
        assert isinstance(self.policy, str), "policies that differ are refused before"
        hints = hints_of(self.node, self.want, self.policy, self.strategies, widest)
        if isinstance(hints, Refused):
            return hints
        exclusive = self.demand.numa_exclusive or (policies.REQUIRED if self.demand.numa_policy else "")
        numas = [zone.numa for zone in self.node.options.zones]
        return merge(self.policy, numas, [hints], exclusive, self.node.book.use)

    @property
    def affinity(self) -> Hint | None:
        """The NUMA affinity that was found, if one was looked for."""
        return self._admitted if isinstance(self._admitted, Hint) else None

    def reserve(self) -> Allocation | Refused:
        """What the pod gets; nothing when neither it nor the node asks for CPUs of its own or a NUMA policy."""
        if isinstance(self.policy, Refused):
            return self.policy
        if not self.policy or self.demand.designated is not None:
            return self._allocate(None)
        affinity = self.admit()
        if isinstance(affinity, Refused):
            return affinity
        return self._allocate(affinity.mask)

    def _allocate(self, mask: Mask | None) -> Allocation | Refused:
        if mask not in self._got:
            designated = self.demand.designated
            self._got[mask] = (
                allocate(self.node, self.want, mask)
                if designated is None
                else allocate_designated(self.node, self.want, designated)
            )
        return self._got[mask]

    def score(self, whole: Amounted) -> int:
        """How good the node is for the pod, 0..100."""
        if isinstance(self.policy, Refused) or (self.want.binds and not self.node.options.topology.valid):
            return 0
        if not self.policy:
            total, held = whole.allocatable, self._adjusted(whole)
        else:
            # The affinity of BestEffort is only found when the node is taken.
            decided = self.policy == policies.BEST_EFFORT or self.demand.designated is not None
            affinity = None if decided else self.admit()
            if isinstance(affinity, Refused):
                return 0
            got = self._allocate(affinity.mask if affinity else None)
            if isinstance(got, Refused):
                return 0
            if got.zones:
                total, held = self._sums({numa for numa, _ in got.zones})
            else:
                total, held = whole.allocatable, dict(whole.requested)
            if got.cpus:
                # As upstream has it, all CPUs held on the node count, even against the zones of the allocation alone.
                own = 1000 * len(self.node.book.cpus.held)
                held["cpu"] = amplified(own, self.node.options.ratios.get("cpu", 1))
        return score(self.strategies.of_node, self.strategies.weights, total, held, self.want.requests)

    def _adjusted(self, whole: Amounted) -> dict[str, int]:
        """What the node's pods request, with held CPUs counted as much as the node counts them."""
        held = dict(whole.requested)
        ratio = self.node.options.ratios.get("cpu", 1)
        own = 1000 * len(self.node.book.cpus.held)
        if own and ratio > 1 and self.demand.requests.get("cpu", 0) > 0:
            held["cpu"] = held.get("cpu", 0) - own + amplified(own, ratio)
        return held

    def _sums(self, numas: set[int]) -> tuple[dict[str, int], dict[str, int]]:
        """What the zones have, and what is held of them, summed up."""
        total: dict[str, int] = {}
        held: dict[str, int] = {}
        by_zone = self.node.held
        for zone in self.node.options.zones:
            if zone.numa in numas:
                for name, size in zone.total.items():
                    total[name] = total.get(name, 0) + size
                for name, size in by_zone[zone.numa].items():
                    held[name] = held.get(name, 0) + size
        return total, held
