"""InterferenceAvoidance: keeps best-effort pods away from nodes on which they would slow others down.

    raw   = 1 for a best-effort pod on a node with the label node.koordinator.sh/interfered=true, else 0
    score = 100 * (highest raw - raw) // highest raw, over the feasible nodes; 100 where it is 0

Action ingest sets the label while a pod of the node is slowed down and the answer is `hint` (docs/interference.md). The
score compares with those of the other plugins by the weight of the profile; where every feasible node has the label, it
decides nothing. Upstream has no such plugin.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.node_only_result_cache import NodeOnlyState
from services.scheduler.plugins.interference_avoidance import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.interference import INTERFERED
from shared.domain.qos import is_best_effort
from shared.kube.selectors import Requirement

_INTERFERED = Requirement(key=INTERFERED, operator="In", values=("true",))


class InterferenceAvoidance(Plugin):
    """Scores nodes with interference last for best-effort pods; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Raw score: 1 on a node to avoid; fewer is better."""
        return NodeOnlyState(self, snapshot.table, _reads, None, _count)


def _reads(pod_class: PodClass) -> bool:
    return is_best_effort(pod_class.pod)


def _count(table: NodeTable, pod_class: PodClass, rows: Rows) -> Int64:
    if not _reads(pod_class):  # most classes: no label has to be read
        return np.zeros(table.size, np.int64)[rows]
    return table.labels.matches(_INTERFERED, table.size).astype(np.int64)[rows]
