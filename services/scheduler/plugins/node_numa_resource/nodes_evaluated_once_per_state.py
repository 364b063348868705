"""Filter results and scores of nodes that are evaluated singly, by their policies and the usage of their CPUs and zones.

Nodes in one state have one result, so that a class is evaluated once for each state, not for each node. Exceptions are
results that depend on amounts of the whole node, as with amplified CPU.
"""

from collections.abc import Callable, Sequence

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.helper.allocations_of_cycle import AllocationsOfCycle
from services.scheduler.plugins.helper.numa_hint_provider_interface import ClassOffers
from services.scheduler.plugins.helper.rejections import CycleRejections
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import DrawnAllocation, NumaNode
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from services.scheduler.plugins.node_numa_resource.node_equivalence_cache import CachedNode
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation
from services.scheduler.plugins.node_numa_resource.pod_requirements_cached_by_class import PodClassRequirements
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies

FEW = 8
"""Number of nodes up to which the search for equal states costs more than it saves."""

_DEPENDS = -2
"""In place of a result: it depends on amounts of the whole node."""


class SinglyEvaluated:
    """The nodes of one cycle.

    Attributes:
        allocations: those that the cycle has made and released.
    """

    def __init__(
        self, strategies: Strategies, rejections: CycleRejections, snapshot: CycleSnapshot, numa_cache: NumaCache
    ) -> None:
        self._strategies = strategies
        self._rejections = rejections
        self._snapshot = snapshot
        self._numa_cache = numa_cache
        names = dict.fromkeys(("cpu", *(name for name, _ in strategies.weights)))
        self._columns = [(name, column) for name in names if (column := snapshot.column(name)) >= 0]
        self.allocations: AllocationsOfCycle[Allocation, CachedNode] = AllocationsOfCycle(numa_cache)

    # results

    def filter(self, class_requirements: PodClassRequirements, rows: Int64, beside: ClassOffers | None = None) -> Int64:
        """The filter results of nodes; 0: the node passes.

        Args:
            beside: what another plugin offers to the class.
        """
        return self._by_state(class_requirements, rows, self._state_result, self.filter_at, beside)

    def score(self, class_requirements: PodClassRequirements, rows: Int64, beside: ClassOffers | None = None) -> Int64:
        """The scores of nodes, 0..100."""
        return self._by_state(class_requirements, rows, self._state_score, self.score_at, beside)

    def affinities(
        self, class_requirements: PodClassRequirements, rows: Int64, beside: ClassOffers | None = None
    ) -> Int64:
        """The sets of NUMA nodes that were decided, as `AffinitySource.affinities`."""

        def of_row(class_requirements: PodClassRequirements, row: int, beside: ClassOffers | None) -> int:
            return self.admission(class_requirements, row, beside).decided

        return self._by_state(class_requirements, rows, lambda admission: admission.decided, of_row, beside)

    def filter_at(self, class_requirements: PodClassRequirements, row: int, beside: ClassOffers | None = None) -> int:
        """The filter result of one node."""
        admission = self.admission(class_requirements, row, beside)
        result = self._state_result(admission)
        return self._rejections.id_of(admission.filter(self.amounts(row))) if result == _DEPENDS else result

    def score_at(self, class_requirements: PodClassRequirements, row: int, beside: ClassOffers | None = None) -> int:
        """The score of one node."""
        admission = self.admission(class_requirements, row, beside)
        score = admission.score_of_state
        return admission.score(self.amounts(row)) if score is None else score

    def admission(
        self, class_requirements: PodClassRequirements, row: int, beside: ClassOffers | None = None
    ) -> NodeAdmission:
        """The admission of the class to a node."""
        offers = () if beside is None else beside.on(row)
        return self.allocations.state(row).admission(class_requirements, self._strategies, offers)

    def admission_within(
        self,
        class_requirements: PodClassRequirements,
        row: int,
        drawn: DrawnAllocation,
        others: Sequence[Allocation],
        beside: ClassOffers | None = None,
    ) -> NodeAdmission:
        """The admission of a pod that draws on a Reservation, and not on others that are lifted."""
        node = self.allocations.state_with(row, others).node
        within = NumaNode(node.options, node.usage, node.max_pods, drawn)
        offers = () if beside is None else beside.on(row)
        return NodeAdmission(class_requirements.requirements, within, self._strategies, offers)

    def amounts(self, row: int) -> "RowAmounts":
        """Amounts of the whole node."""
        return RowAmounts(self._snapshot, self._columns, row)

    def _state_result(self, admission: NodeAdmission) -> int:
        found = admission.filter_of_state
        return _DEPENDS if found is None else self._rejections.id_of(found[0])

    @staticmethod
    def _state_score(admission: NodeAdmission) -> int:
        score = admission.score_of_state
        return _DEPENDS if score is None else score

    def _by_state(
        self,
        class_requirements: PodClassRequirements,
        rows: Int64,
        of_state: Callable[[NodeAdmission], int],
        of_row: Callable[[PodClassRequirements, int, ClassOffers | None], int],
        beside: ClassOffers | None,
    ) -> Int64:
        """[rows]: `of_state` for each state that one of the nodes is in, `of_row` where that depends on the node.

        With offers of another plugin a state is a pair: this plugin's and the other's.
        """
        if len(rows) <= FEW:
            return np.array([of_row(class_requirements, row, beside) for row in rows.tolist()], np.int64)
        every = self._numa_cache.state_numbers(rows).copy()
        for row in self.allocations.rows():
            every[row] = self.allocations.state(row).number
        numbers = every[rows]
        if beside is not None:
            _, numbers = np.unique(
                np.stack((numbers, beside.provider.offer_numbers(rows)), axis=1), axis=0, return_inverse=True
            )
        _, first, state_of = np.unique(numbers.reshape(-1), return_index=True, return_inverse=True)
        admissions = (self.admission(class_requirements, row, beside) for row in rows[first].tolist())
        found: Int64 = np.array([of_state(admission) for admission in admissions], np.int64)[state_of]
        for place in np.flatnonzero(found == _DEPENDS).tolist():
            found[place] = of_row(class_requirements, int(rows[place]), beside)
        return found


class RowAmounts:
    """Amounts of a whole node, of the resources that count; read on access."""

    __slots__ = ("_columns", "_row", "_snapshot")

    def __init__(self, snapshot: CycleSnapshot, columns: list[tuple[str, int]], row: int) -> None:
        self._snapshot = snapshot
        self._columns = columns
        self._row = row

    @property
    def allocatable(self) -> dict[str, int]:
        """The allocatable amounts."""
        item = self._snapshot.allocatable.item
        return {name: item(self._row, column) for name, column in self._columns}

    @property
    def requested(self) -> dict[str, int]:
        """The requests of the node's pods."""
        item = self._snapshot.requested.item
        return {name: item(self._row, column) for name, column in self._columns}
