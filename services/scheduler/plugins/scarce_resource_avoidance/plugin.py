"""ScarceResourceAvoidance: keeps pods that need no scarce resource away from the nodes that have it.

    unused = resources that the node has and the pod does not request;  scarce = those of them that are configured
    score  = floor( (unused - scarce) * 100 / unused ), 100 when either is none

Source: spec/scheduler-core.md 6; upstream pkg/scheduler/plugins/scarceresourceavoidance.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.node_only_result_cache import NodeOnlyState
from services.scheduler.plugins.scarce_resource_avoidance import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass


class ScarceResourceAvoidance(Plugin):
    """Scores nodes by the share of their unused resources that is not scarce; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, scarce: frozenset[str]) -> None:
        self.scarce = scarce

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; no placement changes its scores."""
        return _ScarceResourceAvoidanceState(self, snapshot)

    def score(self, allocatable: Int64, columns: Mapping[str, int], pod_class: PodClass) -> Int64:
        """Scores rows of allocatable amounts: the formula of the module docstring."""
        requested = _requested(pod_class)
        unused = np.zeros(len(allocatable), np.int64)
        scarce = np.zeros(len(allocatable), np.int64)
        for name, column in columns.items():
            if name in requested or column >= allocatable.shape[1]:  # beyond: no node had it when the cycle began
                continue
            has = allocatable[:, column] > 0
            unused += has
            if name in self.scarce:
                scarce += has
        return np.where(scarce == 0, MAX_SCORE, (unused - scarce) * MAX_SCORE // np.maximum(unused, 1))


class _ScarceResourceAvoidanceState(NodeOnlyState):
    """The cached scores of the table, until a step of the cycle changes allocatable amounts."""

    __slots__ = ("_plugin", "_snapshot")

    def __init__(self, plugin: ScarceResourceAvoidance, snapshot: CycleSnapshot) -> None:
        super().__init__(plugin, snapshot.table, _requested, None, self._score_table)
        self._plugin = plugin
        self._snapshot = snapshot

    def score(self, pod_class: PodClass, rows: Rows) -> Int64:
        """The scores, in an array that the caller may change."""
        snapshot = self._snapshot
        if snapshot.owns_capacity:
            return self._plugin.score(snapshot.allocatable[: snapshot.size][rows], snapshot.table.columns, pod_class)
        scores = super().score(pod_class, rows)
        assert scores is not None, "`_score_table` scores every class"
        return scores.copy()

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        return int(self.score(pod_class, np.array([row]))[0])

    def can_predict(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True for every class."""
        return True

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginCycleState:  # noqa: ARG002
        """The state itself: pods do not change the scores."""
        return self

    def _score_table(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> Int64:
        return self._plugin.score(table.allocatable[: table.size][rows], table.columns, pod_class)


def _requested(pod_class: PodClass) -> tuple[str, ...]:
    return tuple(sorted(name for name, size in pod_class.request.items() if size > 0))
