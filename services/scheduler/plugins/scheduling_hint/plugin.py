"""SchedulingHint: a pod goes to the nodes that its hint names, if they are feasible.

Source: spec/scheduler-core.md 1.6; upstream pkg/scheduler/plugins/schedulinghint.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.node_only_result_cache import NodeOnlyState
from services.scheduler.plugins.helper.scheduling_hint_annotation import BadHint, Hint, read_hint
from services.scheduler.plugins.scheduling_hint import SPEC
from services.scheduler.plugins.scheduling_hint.args import MAX_HINT_NODES
from services.scheduler.state.pod_equivalence_class import PodClass

_NOT_LISTED, _UNREADABLE = 1, 2


class SchedulingHint(Plugin):
    """Rejects the nodes that a hint does not list; the preferred ones come before all scores."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, max_nodes: int = MAX_HINT_NODES) -> None:
        self.max_nodes = max_nodes

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; its filter results depend on the names of nodes alone."""
        return NodeOnlyState(self, snapshot.table, _named, self._evaluate, None)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        """The hint does not list the node, or cannot be read."""
        if result == _NOT_LISTED:
            return (Reason("HintMismatch"),)
        hint = _hint_of(pod_class)
        return (Reason("UnreadableAnnotation", hint if isinstance(hint, str) else ""),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: the node's name does not change."""
        return True

    def preferred_nodes(self, pod_class: PodClass) -> tuple[str, ...]:
        """The nodes that the hint prefers, at most `max_nodes` of them."""
        hint = _hint_of(pod_class)
        return (hint.preferred_node_names or ())[: self.max_nodes] if isinstance(hint, Hint) else ()

    @staticmethod
    def _evaluate(table: NodeTable, pod_class: PodClass, rows: Rows) -> Int64:
        hint = _hint_of(pod_class)
        if isinstance(hint, str):
            return np.full(table.size, _UNREADABLE, np.int64)[rows]
        if hint is None or not hint.node_names:
            return np.zeros(table.size, np.int64)[rows]
        results = np.full(table.size, _NOT_LISTED, np.int64)
        results[[table.rows[name] for name in hint.node_names if name in table.rows]] = 0
        return results[rows]


def _hint_of(pod_class: PodClass) -> Hint | str | None:
    """The hint of a class; the error text where it cannot be read."""
    try:
        return read_hint(pod_class.pod.metadata.annotations)
    except BadHint as error:
        return str(error)


def _named(pod_class: PodClass) -> tuple[str, ...]:
    hint = _hint_of(pod_class)
    return ("", hint) if isinstance(hint, str) else (hint.node_names or ()) if hint else ()
