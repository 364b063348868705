"""NodeName: a pod that names its node goes to that node only. Source: spec/scheduler-core.md 2.2."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Rows
from services.scheduler.plugins.helper.node_only_result_cache import NodeOnlyState
from services.scheduler.plugins.node_name import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass


class NodeName(Plugin):
    """Rejects every node but the one in `spec.nodeName`, when that is set."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter result 1: another node."""
        return NodeOnlyState(self, snapshot.table, lambda pod_class: pod_class.pod.spec.node_name, _evaluate, None)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The only reason of the plugin."""
        return (Reason("NodeNameMismatch"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: the node's name does not change."""
        return True


def _evaluate(table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
    refused = np.zeros(table.size, np.int64)
    if node_name := pod_class.pod.spec.node_name:
        refused[:] = 1
        if (row := table.rows.get(node_name)) is not None:
            refused[row] = 0
    return refused[rows]
