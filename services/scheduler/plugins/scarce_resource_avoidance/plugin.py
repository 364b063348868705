"""ScarceResourceAvoidance: keeps pods that need no scarce resource away from the nodes that have it.

    unused = resources that the node has and the pod does not request;  scarce = those of them that are configured
    score  = floor( (unused - scarce) * 100 / unused ), 100 when either is none

Source: spec/scheduler-core.md 6; upstream pkg/scheduler/plugins/scarceresourceavoidance.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_cycle_state import PluginCycleState
from services.scheduler.framework.spec import PluginSpec
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.plugins.helper.node_only import NodeOnlyState
from services.scheduler.plugins.scarce_resource_avoidance import SPEC
from services.scheduler.state.pod_class import PodClass


class ScarceResourceAvoidance(Plugin):
    """Scores nodes by the share of their unused resources that is not scarce; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, scarce: frozenset[str]) -> None:
        self.scarce = scarce

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; its scores depend on node objects alone."""
        return NodeOnlyState(self, snapshot.table, _requested, None, self._score)

    def _score(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> Int64:
        requested = _requested(pod_class)
        unused = np.zeros(table.size, np.int64)
        scarce = np.zeros(table.size, np.int64)
        for name, column in table.columns.items():
            if name in requested:
                continue
            has = table.allocatable[: table.size, column] > 0
            unused += has
            if name in self.scarce:
                scarce += has
        score = np.where(scarce == 0, MAX_SCORE, (unused - scarce) * MAX_SCORE // np.maximum(unused, 1))
        return score[rows]


def _requested(pod_class: PodClass) -> tuple[str, ...]:
    return tuple(sorted(name for name, size in pod_class.request.items() if size > 0))
