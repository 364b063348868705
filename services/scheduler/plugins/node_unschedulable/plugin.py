"""NodeUnschedulable: keeps pods off cordoned nodes, unless they tolerate it. Source: spec/scheduler-core.md 2.2."""

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
from services.scheduler.plugins.helper.tolerations import tolerations_of
from services.scheduler.plugins.node_unschedulable import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.tolerations import tolerates
from shared.kube.node import Taint

CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that `spec.unschedulable` stands for."""


class NodeUnschedulable(Plugin):
    """Rejects nodes with `spec.unschedulable`, except for pods that tolerate CORDONED."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter result 1: the node is cordoned."""
        return NodeOnlyState(self, snapshot.table, tolerations_of, _evaluate, None)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The only reason of the plugin."""
        return (Reason("NodeUnschedulable"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: the node stays cordoned."""
        return True


def _evaluate(table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
    cordoned = table.unschedulable[rows].astype(np.int64)
    if any(tolerates(toleration, CORDONED) for toleration in pod_class.pod.spec.tolerations):
        cordoned[:] = 0
    return cordoned
