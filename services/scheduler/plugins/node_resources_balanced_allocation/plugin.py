"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly.

    f_r   = min( (requested + request of the pod) / allocatable, 1 ), for each configured resource that the node has
    score = floor( (1 - std) * 100 ),  std = |f_0 - f_1| / 2 of two, the population's standard deviation of more, else 0

Requests count without the defaults of NodeResourcesFit. Kubernetes after 1.35 has another formula.

Source: spec/scheduler-core.md 2.4; upstream Kubernetes
pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go.
"""

from math import sqrt
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.kernel_filter_and_score_terms import BalanceTerm
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.kernels.fit_allocation_balance import balance_scores
from services.scheduler.plugins.helper.scoring_strategy_args import ALWAYS_SCORED
from services.scheduler.plugins.node_resources_balanced_allocation import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass


class NodeResourcesBalancedAllocation(Plugin):
    """Scores nodes by the balance of the configured resources; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, resources: tuple[str, ...] = ("cpu", "memory")) -> None:
        self.resources = resources

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Scores 0..100."""
        return _BalancedAllocationState(self.resources, snapshot)


class _BalancedAllocationState(PluginCycleState):
    """State of the plugin for one cycle."""

    def __init__(self, resources: tuple[str, ...], snapshot: CycleSnapshot) -> None:
        self._resources = resources
        self._snapshot = snapshot

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a pod that requests none of the resources."""
        part = self.score_term(pod_class)
        if part is None:
            return None
        snapshot = self._snapshot
        return balance_scores(*snapshot.which(rows), snapshot.allocatable.T, snapshot.requested.T, *part)

    def score_term(self, pod_class: PodClass) -> BalanceTerm | None:
        """The resources that can count."""
        columns = self._columns(pod_class)
        if columns is None:
            return None
        pairs = np.array(columns, np.int64).reshape(len(columns), 2).T.copy()
        return BalanceTerm(pairs[0], pairs[1])

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        columns = self._columns(pod_class)
        if columns is None:
            return 0
        snapshot = self._snapshot
        fractions: list[float] = []
        for column, requested in columns:
            capacity = snapshot.allocatable.item(row, column)
            if capacity > 0:
                fractions.append(min((snapshot.requested.item(row, column) + requested) / capacity, 1.0))
        deviation = 0.0
        if len(fractions) == 2:
            deviation = abs((fractions[0] - fractions[1]) / 2)
        elif len(fractions) > 2:
            total = 0.0
            for fraction in fractions:
                total += fraction
            mean, squares = total / len(fractions), 0.0
            for fraction in fractions:
                squares += (fraction - mean) * (fraction - mean)
            deviation = sqrt(squares / len(fractions))
        return int((1 - deviation) * MAX_SCORE)

    def can_predict(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True for every class."""
        return True

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> "_BalancedAllocationState":  # noqa: ARG002
        """The state with one more pod of the class on every node."""
        return _BalancedAllocationState(self._resources, snapshot)

    def _columns(self, pod_class: PodClass) -> list[tuple[int, int]] | None:
        """(column, requested amount) of each resource that can count, None when the pod requests none of them."""
        if not any(pod_class.request.get(name, 0) for name in self._resources):
            return None
        snapshot, table = self._snapshot, self._snapshot.table
        found: list[tuple[int, int]] = []
        for name in self._resources:
            requested, column = pod_class.request.get(name, 0), table.columns.get(name)
            if column is not None and column < snapshot.requested.shape[1] and (requested or name in ALWAYS_SCORED):
                found.append((column, requested))
        return found
