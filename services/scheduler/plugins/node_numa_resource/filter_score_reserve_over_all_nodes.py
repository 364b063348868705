"""Filter, score and reservation of CPUs and NUMA zones over all nodes, for one cycle.

Nodes and classes without NUMA requirements are scored at once, all others node by node.
"""

from collections.abc import Mapping
from copy import copy
from typing import cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.kernel_filter_and_score_terms import AllocationTerm, ScoreTerm
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.kernels.fit_allocation_balance import allocation_scores
from services.scheduler.plugins.helper.numa_hint_provider_interface import ANY_NUMA, ClassOffers, ZoneProvider
from services.scheduler.plugins.helper.rejections import CycleRejections, Rejection
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of, annotations_for
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import DrawnAllocation
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation
from services.scheduler.plugins.node_numa_resource.nodes_evaluated_once_per_state import SinglyEvaluated
from services.scheduler.plugins.node_numa_resource.pod_requirements import PodRequirements
from services.scheduler.plugins.node_numa_resource.pod_requirements_cached_by_class import (
    PodClassRequirements,
    RequirementsByClass,
)
from services.scheduler.plugins.node_numa_resource.policy_names import FIXED, MOST
from services.scheduler.plugins.node_numa_resource.scoring_strategy import ALWAYS_SCORED, Strategies, score
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.domain.reservation import RESTRICTED

_NOT_WITHIN_RESERVATION = Rejection((Reason("NotWithinReservation"),))


class NumaState(PluginCycleState):
    """State of NodeNUMAResource for one cycle."""

    def __init__(
        self,
        strategies: Strategies,
        requirements: RequirementsByClass,
        rejections: CycleRejections,
        snapshot: CycleSnapshot,
        numa_cache: NumaCache,
    ) -> None:
        self._strategies = strategies
        self._requirements = requirements
        self._rejections = rejections
        self.snapshot = snapshot
        size = snapshot.size
        self._alive: Bools = snapshot.table.alive[:size].copy()
        self._alive_count = int(np.count_nonzero(self._alive))
        plain, valid = numa_cache.sized(size)
        self._not_plain = _some(self._alive & ~plain)
        self._not_for_bound = _some(self._alive & ~(plain & valid))
        self._scored = tuple(snapshot.column(name) for name, _ in strategies.weights)
        self._unscored = (-1,) * len(self._scored)
        self._weights = tuple(weight for _, weight in strategies.weights)
        self._aligned, self._fixed = numa_cache.aligned[:size], numa_cache.fixed[:size]
        self._singly = SinglyEvaluated(strategies, rejections, snapshot, numa_cache)
        self._providers: dict[str, ref[ZoneProvider]] = {}

    def join(self, scheduler: str, others: Mapping[str, PluginCycleState]) -> None:
        """Gets DeviceShare, whose devices lie below NUMA nodes."""
        for other in others.values():
            self._providers[scheduler] = ref(cast("ZoneProvider", other))  # which holds this state

    def _beside(self, pod_class: PodClass) -> ClassOffers | None:
        """The offers of devices to the class; None where it needs none, or no node has some."""
        joined = self._providers.get(pod_class.scheduler)
        provider = joined() if joined is not None else None
        return ClassOffers(provider, pod_class) if provider is not None and provider.offers_zones(pod_class) else None

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True where the class has requirements or a node has a policy, whatever the requested amounts."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None:
            return False
        return (
            isinstance(class_requirements, Rejection)
            or class_requirements.requirements.bind
            or self._singly_evaluated(class_requirements.requirements) is not None
        )

    def score_term(self, pod_class: PodClass) -> ScoreTerm | None:
        """The allocation of nodes, where few have to be evaluated singly."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return None
        singly = self._singly_evaluated(class_requirements.requirements)
        if singly is not None and 2 * np.count_nonzero(singly) > self._alive_count:
            return None  # one call of `score` is cheaper than a correction of most totals
        return self._fullness(class_requirements.requirements)

    def unpredictable(self, pod_class: PodClass) -> Bools | None:
        """Nodes with a policy, or with amplified CPU."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return None
        return self._singly_evaluated(class_requirements.requirements)

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The filter results; None when neither pods nor nodes have requirements."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None:
            return None
        count = len(self._alive[rows])
        if isinstance(class_requirements, Rejection):
            return np.full(count, self._rejections.id_of(class_requirements), np.int64)
        singly = self._singly_evaluated(class_requirements.requirements)
        if singly is None or not (singly := singly[rows]).any():
            return None
        places, which = _places(singly, rows)
        results = np.zeros(count, np.int64)
        results[places] = self._singly.filter(class_requirements, which, self._beside(pod_class))
        return results

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None:
            return 0
        if isinstance(class_requirements, Rejection):
            return self._rejections.id_of(class_requirements)
        return (
            self._singly.filter_at(class_requirements, row, self._beside(pod_class))
            if self._is_singly_evaluated(class_requirements.requirements, row)
            else 0
        )

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Least or most allocated, of the node or of the zones of the pod's allocation."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return None
        scores = self._scores_of_nodes(class_requirements.requirements, rows)
        singly = self._singly_evaluated(class_requirements.requirements)
        if singly is not None:
            places, which = _places(singly[rows], rows)
            scores[places] = self._singly.score(class_requirements, which, self._beside(pod_class))
        return scores

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return 0
        if self._is_singly_evaluated(class_requirements.requirements, row):
            return self._singly.score_at(class_requirements, row, self._beside(pod_class))
        whole, strategies = self._singly.amounts(row), self._strategies
        requirements = class_requirements.requirements
        return score(strategies.of_node, strategies.weights, whole.allocatable, whole.requested, requirements.requests)

    def can_predict(self, pod_class: PodClass) -> bool:
        """Returns True where the pods allocate nothing, except on nodes that have to be evaluated singly."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None:
            return True
        if isinstance(class_requirements, Rejection) or class_requirements.requirements.bind:
            return False
        return self._singly_evaluated(class_requirements.requirements) is not self._alive

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginCycleState | None:
        """The state with one more pod of the class on every node that is not `unpredictable`, and these alone."""
        if not self.can_predict(pod_class):
            return None
        fuller = copy(self)
        fuller.snapshot = snapshot
        fuller._not_plain = None  # noqa: SLF001 (else its filter would evaluate them singly, with outdated usage)
        return fuller

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:
        """CPUs and zones for a pod of the class, as annotations; none where neither pod nor node requires them."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return {}
        if not class_requirements.requirements.bind and not self._is_singly_evaluated(
            class_requirements.requirements, row
        ):
            return {}
        admission, is_drawn = self._admission(pod_class, class_requirements, row)
        allocation = admission.reserve()
        if isinstance(allocation, Rejection):
            return self._rejections.id_of(_NOT_WITHIN_RESERVATION if is_drawn else allocation)
        if not admission.allocates:
            return {}
        if admission.annotations is None or admission.annotations[0] is not pod_class:
            request = admission.request
            notes = annotations_for(pod_class.pod, allocation, request.own_bind, required=request.required)
            admission.annotations = pod_class, notes
        return admission.annotations[1]

    def _admission(
        self, pod_class: PodClass, class_requirements: PodClassRequirements, row: int
    ) -> tuple[NodeAdmission, bool]:
        """Returns the admission to a node, and whether it draws on CPUs or NUMA amounts of a Reservation."""
        holds = self.snapshot.holds
        drawn = holds.drawn
        others = [held for uid in drawn.others if (held := _held(holds.assignment(uid)))]
        left = _held(holds.assignment(drawn.uid)) if drawn.uid else Allocation()
        if not left and not others:
            return self._singly.admission(class_requirements, row, self._beside(pod_class)), False
        capacity = holds.table.capacities[drawn.uid] if drawn.uid else None
        is_restricted = capacity is not None and capacity.reservation.policy == RESTRICTED
        restricted = frozenset(capacity.restricted if capacity is not None and is_restricted else ())
        within = self._singly.admission_within(
            class_requirements, row, DrawnAllocation(left, restricted), others, self._beside(pod_class)
        )
        return within, bool(left)

    # the merged affinity, for plugins whose resources lie below NUMA nodes too

    def fixed_rows(self, pod_class: PodClass) -> Bools | None:
        """bool[all rows]: nodes whose affinity the filter decides: by their policies, or by that of the pod."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return None
        requirements = class_requirements.requirements
        if requirements.designated is not None or (self._not_plain is None and not requirements.numa_policy):
            return None
        if requirements.numa_policy:
            return self._alive if requirements.numa_policy in FIXED else None
        return _some(self._alive & self._fixed)

    def affinities(self, pod_class: PodClass, rows: Int64) -> Int64:
        """[rows]: the affinities of `fixed_rows`, a bit for each NUMA node; ANY_NUMA where any will do."""
        class_requirements = self._requirements.of(pod_class)
        assert class_requirements is not None, "a class with such nodes has requirements"
        assert not isinstance(class_requirements, Rejection), "a class with such nodes can be read"
        return self._singly.affinities(class_requirements, rows, self._beside(pod_class))

    def affinity_to_reserve(self, pod_class: PodClass, row: int) -> int:
        """The affinity for the next pod of the class on a node, as `reserve` chooses it."""
        class_requirements = self._requirements.of(pod_class)
        if class_requirements is None or isinstance(class_requirements, Rejection):
            return ANY_NUMA
        if not class_requirements.requirements.numa_policy and not self._aligned[row]:
            return ANY_NUMA
        return self._admission(pod_class, class_requirements, row)[0].decided

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Counts the allocation of the pod."""
        allocation = allocation_of({**(pod_class.pod.metadata.annotations or {}), **annotations})
        if allocation:
            self._singly.allocations.assume(row, allocation)

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Counts the allocation no longer. It is the last one: of pods that share a CPU, the last one's policy counts."""
        if allocation_of({**(pod_class.pod.metadata.annotations or {}), **annotations}):
            self._singly.allocations.undo_assume(row)

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Frees the allocation of a running pod, or counts it again."""
        if allocation := _held(assignment):
            self._singly.allocations.release(row, allocation, sign)

    def _singly_evaluated(self, requirements: PodRequirements) -> Bools | None:
        """bool[rows]: nodes that have to be evaluated one by one; None when there are none."""
        if requirements.numa_policy or requirements.required or requirements.designated is not None:
            return self._alive
        return self._not_for_bound if requirements.bind else self._not_plain

    def _is_singly_evaluated(self, requirements: PodRequirements, row: int) -> bool:
        singly = self._singly_evaluated(requirements)
        return singly is not None and bool(singly[row])

    def _scores_of_nodes(self, requirements: PodRequirements, rows: Rows) -> Int64:
        """The scores of nodes as wholes, without policies and amplification."""
        snapshot, part = self.snapshot, self._fullness(requirements)
        arrays = (
            *snapshot.which(rows),
            snapshot.allocatable.T,
            snapshot.requested.T,
            snapshot.nonzero_requested.T,
        )
        return allocation_scores(*arrays, *part.arrays())

    def _fullness(self, requirements: PodRequirements) -> AllocationTerm:
        requested = tuple([requirements.requests.get(name, 0) for name, _ in self._strategies.weights])
        columns, weights = self._scored, self._strategies.weights
        if 0 in requested:
            columns = tuple(
                column if size > 0 or name in ALWAYS_SCORED else -1
                for column, size, (name, _) in zip(columns, requested, weights, strict=True)
            )
        return AllocationTerm(columns, self._unscored, requested, self._weights, self._strategies.of_node == MOST)


def _held(assignment: Assignment) -> Allocation:
    """Returns the CPUs and NUMA amounts of an assigned pod."""
    return allocation_of({**(assignment.pod_class.pod.metadata.annotations or {}), **(assignment.allocation or {})})


def _places(singly: Bools, rows: Rows) -> tuple[NDArray[np.intp], Int64]:
    """(places among the rows, rows) of the nodes to evaluate singly; `singly` is bool[rows]."""
    places = np.flatnonzero(singly)
    return places, places if isinstance(rows, slice) else np.asarray(rows)[places]


def _some(rows: Bools) -> Bools | None:
    return rows if rows.any() else None
