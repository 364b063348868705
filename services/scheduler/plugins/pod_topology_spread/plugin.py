"""PodTopologySpread: spreads the pods of a selector evenly over the domains of a topology key.

Filter (DoNotSchedule): pods in the node's domain + 1 if the pod is one of them - the fewest in any domain <= maxSkew.
Score (ScheduleAnyway):

    raw   = round( sum_c ( pods_c * ln(domains_c + 2) + maxSkew_c - 1 ) )
    score = 100 * (highest + lowest - raw) // highest;  100 when the highest is 0, 0 on a node that lacks a key

Pods are counted by selector and node in the pod index, so that a class is evaluated without reading any pod.

Source: spec/scheduler-core.md 2.6; upstream Kubernetes pkg/scheduler/framework/plugins/podtopologyspread.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.plugins.pod_topology_spread import SPEC
from services.scheduler.plugins.pod_topology_spread.args import SYSTEM_DEFAULTS, SpreadArgs
from services.scheduler.plugins.pod_topology_spread.constraints import may_be_spread
from services.scheduler.plugins.pod_topology_spread.domain_counts import MISSING_LABEL, ClassConstraints
from services.scheduler.state.pod_equivalence_class import PodClass


class PodTopologySpread(Plugin):
    """Rejects nodes whose domain would exceed the emptiest one by too much; prefers those in emptier domains."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: SpreadArgs = SYSTEM_DEFAULTS) -> None:
        self.args = args

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter results 1: a key is missing; 2: the skew is too large."""
        return PodTopologySpreadState(self.args, snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The reason of the first constraint that rejects the node."""
        return (Reason("TopologyLabelMissing" if result == MISSING_LABEL else "TopologySpreadViolated"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption adds no label to a node."""
        return result == MISSING_LABEL


class PodTopologySpreadState(PluginCycleState):
    """State of the plugin for one cycle."""

    def __init__(self, args: SpreadArgs, snapshot: CycleSnapshot) -> None:
        self._args = args
        self._snapshot = snapshot
        self._classes: dict[PodClass, ClassConstraints | None] = {}

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True for a class with constraints."""
        return self._constraints_of(pod_class) is not None

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a class without hard constraints."""
        spread = self._constraints_of(pod_class)
        if spread is None or not spread.hard:
            return None
        results: Int64 | None = None
        for counted in spread.hard:
            domain_results = counted.domain_results()[counted.domains.of]
            results = domain_results if results is None else np.where(results == 0, domain_results, results)
        return None if results is None else results[rows]

    def revision(self, pod_class: PodClass) -> int:
        """The number of pods that the cycle has placed, removed or undone, and that concerned the class."""
        spread = self._constraints_of(pod_class)
        return 0 if spread is None else spread.revision

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Returns True for a class without constraints."""
        return self._constraints_of(pod_class) is None

    def scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | None:
        """None for a class without soft constraints."""
        spread = self._constraints_of(pod_class)
        if spread is None or not spread.soft:
            return None
        ranked = feasible & spread.has_keys if spread.needs_keys else feasible
        raw = np.zeros(self._snapshot.size)
        for counted in spread.soft:
            raw += counted.score_part(ranked)
        whole = np.trunc(raw)
        rounded: Int64 = (whole + (raw - whole >= 0.5)).astype(np.int64)
        of_ranked = rounded[ranked]
        highest, lowest = int(of_ranked.max(initial=0)), int(of_ranked.min(initial=np.iinfo(np.int64).max))
        if highest == 0:
            return np.where(ranked, MAX_SCORE, 0)
        return np.where(ranked, MAX_SCORE * (highest + lowest - rounded) // highest, 0)

    def _constraints_of(self, pod_class: PodClass) -> "ClassConstraints | None":
        if pod_class not in self._classes:
            self._classes[pod_class] = None
            if may_be_spread(pod_class, self._snapshot.cluster_objects):
                spread = ClassConstraints(pod_class, self._args, self._snapshot)
                self._classes[pod_class] = spread if spread.hard or spread.soft else None
        spread_of = self._classes[pod_class]
        if spread_of is not None and spread_of.upto < len(self._snapshot.pod_changes.changes):
            self._snapshot.pod_changes.catch_up(spread_of)
        return spread_of
