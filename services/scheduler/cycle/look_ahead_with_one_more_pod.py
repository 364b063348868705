"""Look-ahead: the filter results and totals of all nodes with one more pod of a class each, computed at once.

Of many equal pods each usually goes to another node, so that the next evaluation of a node finds exactly one more of
them there. For a class whose plugins can all predict that state, it is computed for all nodes in one go; a placement
then costs one array access. Nodes that a plugin cannot predict, as those with a NUMA policy, are left out: they are
evaluated again after each placement on them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cycle.active_plugins import ActivePlugins, Scoring
from services.scheduler.cycle.fused_scoring import FusedScoring
from services.scheduler.framework.kernel_filter_and_score_terms import ScoreTerm
from services.scheduler.framework.plugin_base import normalized
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import Normalize
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.kernels.merge_and_select_nodes import close, note_refusals
from services.scheduler.state.pod_equivalence_class import PodClass

MIN_PODS = 12
"""Minimum number of equal pods in a cycle for which looking ahead pays."""


class PredictedEvaluation(NamedTuple):
    """The nodes with one more pod of the class each.

    Attributes:
        by, result, total: as in ClassEvaluation; `by` and `result` are valid where a feasible node becomes rejected.
        unpredicted: bool[rows]: nodes for which the others do not hold; None: none.
    """

    by: Int64
    result: Int64
    total: Int64
    unpredicted: Bools | None

    def predicts(self, row: int) -> bool:
        """Returns True where the node is predicted."""
        return self.unpredicted is None or not self.unpredicted[row]


def predict_evaluation(
    active: ActivePlugins,
    pod_class: PodClass,
    snapshot: CycleSnapshot,
    by: Int64,
    summed_scorers: Sequence[Scoring],
    scorers: Sequence[Scoring],
    raw: Sequence[Int64 | None],
    highest: Sequence[int],
) -> PredictedEvaluation | None:
    """Predicts one pod ahead. Returns None when a plugin cannot, or normalises by the scores of other nodes.

    Args:
        active: of the class.
        snapshot: of the cycle.
        by: present index of the rejecting filter, FEASIBLE for none.
        summed_scorers: plugins whose score terms the fused pass sums up.
        scorers: plugins that score on their own; raw, highest: their present scores.
    """
    fuller, rows = snapshot.after(pod_class), slice(0, len(by))
    later_by, result, total = by.copy(), np.zeros(len(by), np.int64), np.empty(len(by), np.int64)
    parts: list[tuple[int, ScoreTerm]] = []
    for _, weight, state in summed_scorers:
        later = _after(state, pod_class, fuller)
        part = None if later is None else later.score_term(pod_class)
        if part is None:
            return None
        parts.append((weight, part))
    FusedScoring(fuller, active.fit_term(pod_class), parts, active.base).evaluate(rows, later_by, result, total)
    for index, plugin, state in active.moving:
        later = _after(state, pod_class, fuller)
        if later is None:
            if not plugin.spec.reserves and state.filter(pod_class, rows) is None:
                continue
            return None
        results = later.filter(pod_class, rows)
        if results is not None:
            note_refusals(later_by, result, results, index)
    for (plugin, weight, state), now, top in zip(scorers, raw, highest, strict=True):
        if now is None:
            continue
        if plugin.node_only:
            total += normalized(now, top, plugin.normalize) * weight
            continue
        later = _after(state, pod_class, fuller) if plugin.normalize is Normalize.NONE else None
        scores = None if later is None else later.score(pod_class, rows)
        if scores is None:
            return None
        total += scores * weight
    close(total, later_by)
    return PredictedEvaluation(later_by, result, total, _unpredicted(active, pod_class))


def _unpredicted(active: ActivePlugins, pod_class: PodClass) -> Bools | None:
    states = {id(state): state for _, _, state in (*active.filters, *active.scorers)}.values()
    masks = [mask for state in states if (mask := state.unpredictable(pod_class)) is not None]
    return np.logical_or.reduce(masks) if masks else None


def _after(state: PluginCycleState, pod_class: PodClass, fuller: CycleSnapshot) -> PluginCycleState | None:
    return state.after_one_more(pod_class, fuller)
