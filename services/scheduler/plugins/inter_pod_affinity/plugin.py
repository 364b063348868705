"""InterPodAffinity: affinity and anti-affinity between pods, by the domains of a topology key.

Filter, in this order: the pod's required affinity (its domain holds a pod that all terms match; the first pod of a
group that matches itself may go to any node that has the keys), its required anti-affinity, the required
anti-affinity of running pods.
Score, per node and domain of the node:

    raw   = sum of own preferred weights * matching pods there
          + sum over pods there whose terms match this one: their preferred weights, and hardPodAffinityWeight for each
            required affinity
    score = floor( 100 * ((raw - lowest) / (highest - lowest)) )

Both directions are counted in indexes: pods by selector, terms by the pods that have them. No decision reads every
pod.

Source: spec/scheduler-core.md 2.5; upstream Kubernetes pkg/scheduler/framework/plugins/interpodaffinity.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.cycle_pod_changes import CyclePodChanges, PodChange
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.plugins.inter_pod_affinity import SPEC
from services.scheduler.plugins.inter_pod_affinity.affinity_index import AffinityIndex
from services.scheduler.plugins.inter_pod_affinity.affinity_terms import NO_TERMS, terms_of
from services.scheduler.plugins.inter_pod_affinity.args import InterPodArgs
from services.scheduler.plugins.inter_pod_affinity.domain_counts import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING,
    AffinityCounts,
)
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

_CODES = {
    AFFINITY: "PodAffinityMismatch",
    ANTI_AFFINITY: "PodAntiAffinityMismatch",
    EXISTING: "ExistingPodsAntiAffinity",
}


class InterPodAffinity(Plugin):
    """Rejects nodes by required terms, the pod's and those of running pods; scores by preferred ones."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: InterPodArgs = InterPodArgs()) -> None:  # noqa: B008 (frozen)
        self.args = args

    def new_cache(self) -> PluginCache:
        """Index of the terms of running pods."""
        return AffinityIndex()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """A filter result is the number of the rule that rejects the node."""
        assert isinstance(plugin_cache, AffinityIndex), "the index hands back what new_cache made"
        return InterPodAffinityState(self.args, snapshot, plugin_cache)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first rule that rejects the node."""
        return (Reason(_CODES[result]),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Required affinity: evicting a pod brings no matching pod into the domain."""
        return result == AFFINITY


class InterPodAffinityState(PluginCycleState):
    """State of the plugin for one cycle."""

    def __init__(self, args: InterPodArgs, snapshot: CycleSnapshot, plugin_cache: AffinityIndex) -> None:
        self._args = args
        self._snapshot = snapshot
        self._plugin_cache = plugin_cache
        self._classes: dict[PodClass, AffinityCounts] = {}
        # The changes of pods that have terms: only these can concern a class without terms.
        self._with_terms = CyclePodChanges()
        self._any_existing = plugin_cache.any()
        self._without_terms: set[PodClass] = set()  # those that were found to have none

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a class that no required term concerns."""
        results = None if self._has_no_terms(pod_class) else self._counts_of(pod_class).results()
        return None if results is None else results[rows]

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node."""
        results = self._counts_of(pod_class).results()
        return 0 if results is None else int(results[row])

    def revision(self, pod_class: PodClass) -> int:
        """The number of pods that the cycle has placed, removed or undone, and that concerned the class."""
        return 0 if self._has_no_terms(pod_class) else self._counts_of(pod_class).revision

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Returns True for a class without terms: only pods with terms concern it."""
        return terms_of(pod_class) is NO_TERMS

    def scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | None:
        """None for a class that no term concerns."""
        raw = None if self._has_no_terms(pod_class) else self._counts_of(pod_class).raw()
        if raw is None:
            return None
        of_feasible = raw[feasible]
        if not len(of_feasible):
            return np.zeros(len(raw), np.int64)
        lowest, highest = int(of_feasible.min()), int(of_feasible.max())
        if highest == lowest:
            return np.zeros(len(raw), np.int64)
        scores: Int64 = (float(MAX_SCORE) * ((raw - lowest) / (highest - lowest))).astype(np.int64)
        return scores

    def counts(self, pod_class: PodClass) -> bool:
        """Returns True for a class with terms; all other pods are in the changes of the cycle."""
        return terms_of(pod_class) is not NO_TERMS

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Records the pod; a class counts it at its next evaluation."""
        self._with_terms.changes.append(PodChange(pod_class, row, 1))

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:
        """Counts one more pod on the row, or one less."""
        self._with_terms.changes.append(PodChange(pod_class, row, sign, terminating))

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Removes the record of the pod."""
        self._with_terms.undo()

    def undo_move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:  # noqa: ARG002
        """Removes the record of the pod."""
        self._with_terms.undo()

    def _has_no_terms(self, pod_class: PodClass) -> bool:
        """Returns True where neither the class, nor a running pod, nor a pod placed in the cycle has a term."""
        if self._any_existing or self._with_terms.changes:
            return False
        if pod_class in self._without_terms:
            return True
        if terms_of(pod_class) is not NO_TERMS:
            return False
        self._without_terms.add(pod_class)
        return True

    def _counts_of(self, pod_class: PodClass) -> AffinityCounts:
        counts = self._classes.get(pod_class)
        if counts is None:
            counts = AffinityCounts(pod_class, self._args.hard_weight, self._snapshot, self._plugin_cache)
            if self._args.ignores_existing and not counts.prefers:
                counts.ignore_scores()
            self._classes[pod_class] = counts
        moved = self._snapshot.pod_changes if counts.has_terms else self._with_terms
        if counts.upto < len(moved.changes):
            moved.catch_up(counts)
        return counts
