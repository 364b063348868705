"""Counts of the pods that the spread constraints of a class count, by domain."""

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.cycle_pod_changes import PodChange, PodChangeCounter
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.pod_counts_by_selector_and_node import RowCounts
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.helper.node_selectors import own_matches
from services.scheduler.plugins.helper.tolerations import all_tolerated
from services.scheduler.plugins.helper.topology_domains import domains
from services.scheduler.plugins.pod_topology_spread.args import HARD, HOSTNAME, SOFT, SpreadArgs
from services.scheduler.plugins.pod_topology_spread.constraints import constraints_of
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import Matcher, selects
from shared.domain.topology_spread import Constraint

MISSING_LABEL, SKEWED = 1, 2
"""Filter results."""


class ClassConstraints(PodChangeCounter):
    """The constraints of one class, with the pods that they count at the moment.

    Attributes:
        has_keys: bool[rows]: the node has the keys of all soft constraints.
        needs_keys: nodes without them are left out.
        revision: number of counted and undone changes that concerned the class.
    """

    def __init__(self, pod_class: PodClass, args: SpreadArgs, snapshot: CycleSnapshot) -> None:
        cluster_objects = snapshot.cluster_objects
        hard, _ = constraints_of(pod_class, HARD, args, cluster_objects)
        soft, self.needs_keys = constraints_of(pod_class, SOFT, args, cluster_objects)
        self._namespace = pod_class.namespace
        self._counting: dict[PodClass, tuple[ConstraintCounts, ...]] = {}  # those that count pods of the class
        super().__init__()
        self.revision = 0
        self.hard: list[ConstraintCounts] = []
        self.soft: list[ConstraintCounts] = []
        self.has_keys: Bools = np.zeros(0, np.bool_)
        if not hard and not soft:
            return
        nodes = EligibleNodes(pod_class, snapshot)
        self.hard = [ConstraintCounts(each, nodes, nodes.with_keys(hard)) for each in hard]
        self.has_keys = nodes.with_keys(soft)
        everywhere = snapshot.table.alive[: snapshot.size]
        self.soft = [ConstraintCounts(each, nodes, self.has_keys if self.needs_keys else everywhere) for each in soft]

    def concerns(self, pod_class: PodClass) -> bool:
        """Reports whether a constraint counts pods of the class."""
        matching = self._counting[pod_class] = tuple(
            each
            for each in (*self.hard, *self.soft)
            if pod_class.namespace == self._namespace
            and (selector := each.constraint.selector) is not None
            and selects(selector, pod_class.labels)
        )
        return bool(matching)

    def count(self, change: PodChange) -> None:
        """Counts a pod that the cycle has placed or removed; pods that are terminating do not count."""
        pod_class, row, sign, terminating = change
        if terminating:
            return
        self.revision += 1
        for each in self._counting[pod_class]:
            each.add(row, sign)

    def undo_count(self, change: PodChange) -> None:
        """Undoes the last count: sums of integers, so a pod less is the inverse of a pod more."""
        self.count(change._replace(sign=-change.sign))


class EligibleNodes:
    """The nodes that the constraints of a class count, each set computed once."""

    def __init__(self, pod_class: PodClass, snapshot: CycleSnapshot) -> None:
        self.pod_class = pod_class
        self.snapshot = snapshot
        self._matching: Bools | None = None
        self._tolerated: Bools | None = None

    def with_keys(self, constraints: tuple[Constraint, ...]) -> Bools:
        """bool[rows]: nodes that have the keys of all the constraints."""
        has = self.snapshot.table.alive[: self.snapshot.size].copy()
        for constraint in constraints:
            has &= domains(self.snapshot.table, constraint.key).known
        return has

    def included(self, constraint: Constraint, among: Bools) -> Bools:
        """bool[rows]: the nodes whose pods count, by the constraint's inclusion policies."""
        table = self.snapshot.table
        spec = self.pod_class.pod.spec
        if constraint.honors_affinity and (spec.node_selector or spec.affinity):
            if self._matching is None:
                self._matching = own_matches(table, self.pod_class)
            among = among & self._matching
        if constraint.honors_taints:
            if self._tolerated is None:
                self._tolerated = all_tolerated(table, self.pod_class)
            among = among & self._tolerated
        return among

    def pods(self, constraint: Constraint) -> RowCounts:
        """Number of pods on each row that the constraint counts."""
        if constraint.selector is None:
            return RowCounts()
        matcher = Matcher(frozenset((self.pod_class.namespace,)), constraint.selector)
        return self.snapshot.pod_index.counts((matcher,), with_terminating=False)


class ConstraintCounts:
    """One constraint and the pods that it counts.

    Attributes:
        by_domain: int64[domains + 1], over the nodes that are included.
        by_row: int64[rows] for a soft constraint on the host name, which counts each node for itself.
    """

    def __init__(self, constraint: Constraint, nodes: EligibleNodes, among: Bools) -> None:
        self.constraint = constraint
        self.domains = domains(nodes.snapshot.table, constraint.key)
        self.included = nodes.included(constraint, among)
        pods = nodes.pods(constraint)
        self.by_domain = self.domains.counted(pods, self.included)
        self._met = self.domains.touched_by(self.included)[:-1]
        self._pods = pods
        self._by_row: Int64 | None = None
        self._added: list[tuple[int, int]] = []

    def add(self, row: int, by: int) -> None:
        """Counts one more pod on the row, or one less."""
        if self.included[row] and self.domains.known[row]:
            self.by_domain[self.domains.of[row]] += by
        if self._by_row is not None:
            self._by_row[row] += by
        elif self._added and self._added[-1] == (row, -by):
            self._added.pop()
        else:
            self._added.append((row, by))

    def domain_results(self) -> Int64:
        """int64[domains + 1]: the filter result of each domain, and of nodes outside of any."""
        counts = self.by_domain
        here = counts[:-1][self._met]
        fewest = int(here.min()) if len(here) >= max(self.constraint.min_domains, 1) else 0
        most = self.constraint.max_skew - self.constraint.matches_self + fewest
        domain_results = np.where(counts > most, SKEWED, 0)
        domain_results[-1] = MISSING_LABEL
        return domain_results

    def score_part(self, ranked: Bools) -> NDArray[np.float64]:
        """float64[rows]: the constraint's part of the raw score; 0 on nodes without its key."""
        if self.constraint.key == HOSTNAME:
            size, pods = int(np.count_nonzero(ranked)), self._on_rows(len(ranked))
        else:
            size, pods = int(np.count_nonzero(self.domains.touched_by(ranked))), self.by_domain[self.domains.of]
        part = pods.astype(np.float64) * ln(size + 2) + (self.constraint.max_skew - 1)
        part[~self.domains.known] = 0.0
        return part

    def _on_rows(self, size: int) -> Int64:
        if self._by_row is None:
            self._by_row = self._pods.dense(size).copy()
            for row, by in self._added:
                self._by_row[row] += by
        return self._by_row


@lru_cache(maxsize=65_536)
def ln(number: int) -> float:
    """The natural logarithm, rounded to the nearest float: the same bits on every machine."""
    return float(Decimal(number).ln(Context(prec=40)))
