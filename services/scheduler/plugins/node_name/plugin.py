"""NodeName: a pod that names a node goes there or nowhere. Source: spec/scheduler-core.md 2.2."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import Ledger
from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import Normalize
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.tiles import Rows
from services.scheduler.plugins.helper.node_only import NodeOnlyState
from services.scheduler.state.cluster_event import Change
from services.scheduler.state.pod_class import PodAsk


class NodeName:
    """Refuses every node but the one in `spec.nodeName`, when that is set."""

    name: ClassVar[str] = "NodeName"
    node_only: ClassVar[bool] = True
    cross_node: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    queueing_hints: ClassVar[Mapping[str, frozenset[Change]]] = {"NodeNameMismatch": frozenset((Change.NODE_ADDED,))}

    def new_ledger(self) -> None:
        """No account of its own."""

    def new_state(self, room: Room, ledger: Ledger | None, now_ns: int) -> PluginState:  # noqa: ARG002
        """Verdict 1: another node."""
        return NodeOnlyState(self, room.table, lambda ask: ask.pod.spec.node_name, _judge, None)

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The one reason there is."""
        return (Reason("NodeNameMismatch"),)

    def unresolvable(self, ask: PodAsk, verdict: int) -> bool:  # noqa: ARG002
        """Whatever goes, it is another node."""
        return True


def _judge(table: NodeTable, ask: PodAsk, rows: Rows) -> NDArray[np.int64]:
    refused = np.zeros(table.size, np.int64)
    if wanted := ask.pod.spec.node_name:
        refused[:] = 1
        if (row := table.rows.get(wanted)) is not None:
            refused[row] = 0
    return refused[rows]
