"""TaintToleration: a taint keeps pods away that do not tolerate it.

Filter: NoSchedule and NoExecute taints. Score: nodes with fewer PreferNoSchedule taints that the pod does not tolerate.

Source: spec/scheduler-core.md 2.2, 2.4.
"""

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
from services.scheduler.plugins.taint_toleration import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.tolerations import HARD, tolerates
from shared.kube.node import Taint

_SOFT = "PreferNoSchedule"


class TaintToleration(Plugin):
    """Rejects nodes with a hard taint that the pod does not tolerate; the filter result is 1 + the number of the taint.

    Taints are numbered in the order in which they are first met; numbers never leave the process.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self) -> None:
        self._numbers: dict[Taint, int] = {}

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Raw score: the number of PreferNoSchedule taints that the pod does not tolerate; fewer is better."""
        return NodeOnlyState(self, snapshot.table, tolerations_of, self._evaluate, _count_soft)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first taint that is not tolerated, as `key=value:effect`."""
        taint = next(taint for taint, number in self._numbers.items() if number == result)
        value = f"={taint.value}" if taint.value else ""
        return (Reason("UntoleratedTaint", f"{taint.key}{value}:{taint.effect}"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: the taint stays."""
        return True

    def _evaluate(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
        tolerations = pod_class.pod.spec.tolerations
        by_set = np.zeros(len(table.taints), np.int64)
        for number, taints in enumerate(table.taints):
            for taint in taints:
                if taint.effect in HARD and not any(tolerates(toleration, taint) for toleration in tolerations):
                    by_set[number] = self._numbers.setdefault(taint, len(self._numbers) + 1)
                    break
        return by_set[table.taint_set[rows]]


def _count_soft(table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
    tolerations = [t for t in pod_class.pod.spec.tolerations if t.effect in ("", _SOFT)]
    by_set = np.array(
        [
            sum(taint.effect == _SOFT and not any(tolerates(t, taint) for t in tolerations) for taint in taints)
            for taints in table.taints
        ],
        np.int64,
    )
    return by_set[table.taint_set[rows]]
