"""Admission of a pod to one node: filter, score and reservation.

Source: spec/scheduler-core.md 4.5, 4.8 to 4.10; upstream
pkg/scheduler/plugins/nodenumaresource/{plugin,scoring,topology_hint}.go.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.helper.numa_hint_provider_interface import ANY_NUMA, MOST_NUMAS, ZoneOffer, numas_in
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import amplified
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode, allocate, allocate_designated
from services.scheduler.plugins.node_numa_resource.hint_combinations import Hint, Mask
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, Amounts
from services.scheduler.plugins.node_numa_resource.pod_requirements import (
    NodeRequest,
    PodRequirements,
    node_request,
)
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies, score
from services.scheduler.plugins.node_numa_resource.topology_hints import hints_of
from services.scheduler.plugins.node_numa_resource.topology_manager import MergedHint, Provider, mask_of, merge
from services.scheduler.state.pod_equivalence_class import PodClass


class NodeAmounts(Protocol):
    """Amounts of a whole node: allocatable, and the requests of its pods."""

    @property
    def allocatable(self) -> Amounts: ...  # noqa: D102

    @property
    def requested(self) -> Amounts: ...  # noqa: D102


class _AmountsRead(Exception):
    """A result depends on amounts of the whole node."""


class _NoAmounts:
    """Takes the place of amounts of a whole node to find out if a result depends on them."""

    @property
    def allocatable(self) -> Amounts:
        raise _AmountsRead

    @property
    def requested(self) -> Amounts:
        raise _AmountsRead


_NO_AMOUNTS = _NoAmounts()


class NodeAdmission:
    """Admission of the pods of one class to one node.

    Attributes:
        request: the requests on this node.
        policy: NUMA policy of both; a rejection when they differ.
        annotations: the last pod class that reserved, with the annotations of its allocation. Classes with equal
            requirements may write amounts in other units.
    """

    def __init__(
        self, requirements: PodRequirements, node: NumaNode, strategies: Strategies, beside: Sequence[ZoneOffer] = ()
    ) -> None:
        """Begins with a node.

        Args:
            beside: what other plugins offer to the class there.
        """
        self._beside = beside
        self.requirements = requirements
        self.node = node
        self.strategies = strategies
        self.request: NodeRequest = node_request(requirements, node.options, strategies.of_zones)
        self.policy = self._policy()
        self.annotations: tuple[PodClass, Mapping[str, str]] | None = None
        self._admitted: Hint | Rejection | None = None
        self._got: dict[Mask | None, Allocation | Rejection] = {}

    def _policy(self) -> str | Rejection:
        own, theirs = self.requirements.numa_policy, self.node.options.numa_policy
        for policy in (own, theirs):
            if policy not in policy_names.NUMA_POLICIES:
                return Rejection((Reason("UnknownNumaPolicy", policy[:64]),), unresolvable=True)
        if own and theirs and own != theirs:
            return Rejection((Reason("NumaPolicyMismatch"),), unresolvable=True)
        return own or theirs

    @property
    def is_fractional(self) -> bool:
        """Returns True for a pod with CPUs of its own that requests a fraction of one."""
        return self.request.binds and self.requirements.requests["cpu"] % 1000 > 0

    @property
    def allocates(self) -> bool:
        """Returns True where an allocation is recorded: the pod or the node requires CPUs of its own or a NUMA policy."""
        return self.request.binds or bool(self.policy)

    @cached_property
    def filter_of_state(self) -> tuple[Rejection | None] | None:
        """The result of `filter` on all nodes in this state; None where it depends on amounts of the whole node."""
        try:
            return (self.filter(_NO_AMOUNTS),)
        except _AmountsRead:
            return None

    @cached_property
    def score_of_state(self) -> int | None:
        """The score of all nodes in this state; None where it depends on amounts of the whole node."""
        try:
            return self.score(_NO_AMOUNTS)
        except _AmountsRead:
            return None

    def filter(self, whole: NodeAmounts) -> Rejection | None:
        """The rejection of the node; None when it passes."""
        if isinstance(self.policy, Rejection):
            return self.policy
        if self.requirements.designated is not None:
            allocation = self._allocate(None)
            return allocation if isinstance(allocation, Rejection) else None
        if self.is_fractional:
            return Rejection((Reason("CpuNotInteger"),), unresolvable=True)
        rejection = self._filter_amplified(whole)
        if rejection is not None:
            return rejection
        if self.request.binds:
            rejection = self._filter_cpus()
            if rejection is not None:
                return rejection
            if self.request.required and not self.policy:
                tried = self._allocate(None)
                return tried if isinstance(tried, Rejection) else None
        if self.policy in policy_names.FIXED:
            affinity = self.admit()
            return affinity if isinstance(affinity, Rejection) else None
        return None

    def _filter_amplified(self, whole: NodeAmounts) -> Rejection | None:
        options = self.node.options
        ratio = options.node_ratios.get("cpu", 1)
        cpu = self.requirements.requests.get("cpu", 0)
        if ratio <= 1 or not cpu:
            return None
        if options.known and not options.topology.valid:
            return self.node.invalid()
        need = amplified(cpu, ratio) if self.request.binds else cpu
        used = whole.requested.get("cpu", 0)
        own = 1000 * len(self.node.usage.cpus.allocated)
        if own and used >= own:
            used += amplified(own, ratio) - own
        lacks = need > whole.allocatable.get("cpu", 0) - used
        return Rejection((Reason("InsufficientAmplifiedCpu"),)) if lacks else None

    def _filter_cpus(self) -> Rejection | None:
        options = self.node.options
        if not options.topology.valid:
            return self.node.invalid()
        by_node = {policy_names.NODE_FULL_CORES: policy_names.FULL_CORES, policy_names.NODE_SPREAD: policy_names.SPREAD}
        theirs = by_node.get(options.bind_policy, "")
        if self.requirements.required and theirs and self.requirements.required != theirs:
            return Rejection((Reason("CpuBindPolicyConflict"),), unresolvable=True)
        if self.request.required_bind == policy_names.FULL_CORES and self.request.cpus % options.topology.cpus_per_core:
            return Rejection((Reason("CpusNotWholeCores"),), unresolvable=True)
        return None

    def admit(self) -> Hint | Rejection:
        """The NUMA affinity that the topology manager chooses; the allocation with it has been tried."""
        if self._admitted is None:
            self._admitted = self._admit()
        return self._admitted

    def _admit(self) -> Hint | Rejection:
        assert isinstance(self.policy, str), "policies that differ are refused before"
        zones = self.node.options.zones
        if not zones or any(not 0 <= zone.numa < MOST_NUMAS for zone in zones):
            return Rejection((Reason("MissingNumaResources"),), unresolvable=True)
        # A single NUMA node is found among the hints for one; the others are needed only for the reasons where there is none.
        merged = self._merge(1) if self.policy == policy_names.SINGLE_NUMA else self._merge()
        if isinstance(merged, MergedHint) and not merged.admitted and self.policy == policy_names.SINGLE_NUMA:
            merged = self._merge()
        if isinstance(merged, Rejection):
            return merged
        if not merged.admitted:
            unsatisfied = tuple(Reason("UnsatisfiedNuma", name) for name in merged.unsatisfied)
            return Rejection(unsatisfied or (Reason("UnalignedNuma", merged.unaligned),))
        tried = self._allocate(merged.best.mask)
        if isinstance(tried, Rejection):
            return tried
        numas = None if merged.best.mask is None else numas_in(merged.best.mask)
        refused = (rejection for offer in self._beside if (rejection := offer.try_within(numas)) is not None)
        return next(refused, merged.best)

    def _merge(self, widest: int = 64) -> MergedHint | Rejection:
        assert isinstance(self.policy, str), "policies that differ are refused before"
        hints = hints_of(self.node, self.request, self.policy, self.strategies, widest)
        if isinstance(hints, Rejection):
            return hints
        exclusive = self.requirements.numa_exclusive or (policy_names.REQUIRED if self.requirements.numa_policy else "")
        numas = [zone.numa for zone in self.node.options.zones]
        providers: list[Provider] = [hints]
        for offer in self._beside:
            beside = offer.hints()
            if isinstance(beside, Rejection):
                return beside
            providers.append({
                name: [Hint(mask_of(each.numas), each.preferred, each.score) for each in offered]
                for name, offered in beside.items()
            })  # fmt: skip
        return merge(self.policy, numas, providers, exclusive, self.node.usage.use)

    @property
    def decided(self) -> int:
        """The set of NUMA nodes for an allocation of the class; ANY_NUMA without a policy, or where it is rejected."""
        if not self.policy or isinstance(self.policy, Rejection) or self.requirements.designated is not None:
            return ANY_NUMA
        affinity = self.admit()
        return ANY_NUMA if isinstance(affinity, Rejection) or affinity.mask is None else affinity.mask

    @property
    def affinity(self) -> Hint | None:
        """The NUMA affinity, if one was computed."""
        return self._admitted if isinstance(self._admitted, Hint) else None

    def reserve(self) -> Allocation | Rejection:
        """The pod's allocation; an empty one where neither pod nor node requires CPUs of its own or a NUMA policy."""
        if isinstance(self.policy, Rejection):
            return self.policy
        if not self.policy or self.requirements.designated is not None:
            return self._allocate(None)
        affinity = self.admit()
        if isinstance(affinity, Rejection):
            return affinity
        return self._allocate(affinity.mask)

    def _allocate(self, mask: Mask | None) -> Allocation | Rejection:
        if mask not in self._got:
            designated = self.requirements.designated
            self._got[mask] = (
                allocate(self.node, self.request, mask)
                if designated is None
                else allocate_designated(self.node, self.request, designated)
            )
        return self._got[mask]

    def score(self, whole: NodeAmounts) -> int:
        """The score of the node, 0..100."""
        if isinstance(self.policy, Rejection) or (self.request.binds and not self.node.options.topology.valid):
            return 0
        if not self.policy:
            total, allocated = whole.allocatable, self._adjusted(whole)
        else:
            # The affinity of BestEffort is computed only for the chosen node.
            decided = self.policy == policy_names.BEST_EFFORT or self.requirements.designated is not None
            affinity = None if decided else self.admit()
            if isinstance(affinity, Rejection):
                return 0
            allocation = self._allocate(affinity.mask if affinity else None)
            if isinstance(allocation, Rejection):
                return 0
            if allocation.zones:
                total, allocated = self._sums({numa for numa, _ in allocation.zones})
            else:
                total, allocated = whole.allocatable, dict(whole.requested)
            if allocation.cpus:
                # As upstream has it, all allocated CPUs of the node count, even against the zones of the allocation alone.
                own = 1000 * len(self.node.usage.cpus.allocated)
                allocated["cpu"] = amplified(own, self.node.options.ratios.get("cpu", 1))
        return score(self.strategies.of_node, self.strategies.weights, total, allocated, self.request.requests)

    def _adjusted(self, whole: NodeAmounts) -> dict[str, int]:
        """The requests of the node's pods; allocated CPUs count amplified, as the node counts them."""
        allocated = dict(whole.requested)
        ratio = self.node.options.ratios.get("cpu", 1)
        own = 1000 * len(self.node.usage.cpus.allocated)
        if own and ratio > 1 and self.requirements.requests.get("cpu", 0) > 0:
            allocated["cpu"] = allocated.get("cpu", 0) - own + amplified(own, ratio)
        return allocated

    def _sums(self, numas: set[int]) -> tuple[dict[str, int], dict[str, int]]:
        """Sums over the zones of their amounts, and of the allocated ones."""
        total: dict[str, int] = {}
        allocated: dict[str, int] = {}
        by_zone = self.node.allocated
        for zone in self.node.options.zones:
            if zone.numa in numas:
                for name, size in zone.total.items():
                    total[name] = total.get(name, 0) + size
                for name, size in by_zone[zone.numa].items():
                    allocated[name] = allocated.get(name, 0) + size
        return total, allocated
