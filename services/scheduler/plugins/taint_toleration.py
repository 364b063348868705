"""TaintToleration: a taint keeps pods away that do not tolerate it.

Filter: NoSchedule and NoExecute taints. Score: nodes with fewer PreferNoSchedule taints that the pod does not tolerate.

Source: spec/scheduler-core.md 2.2, 2.4.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import Ledger
from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import Normalize
from services.scheduler.framework.plugin_state import Trial
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.tiles import Rows
from services.scheduler.plugins.static import StaticTrial
from services.scheduler.state.cluster_event import Change
from services.scheduler.state.pod_class import PodAsk
from shared.kube.node import Taint
from shared.kube.pod import Toleration

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"


class TaintToleration:
    """Refuses nodes with a hard taint that the pod does not tolerate; the verdict is 1 + the number of the taint.

    Taints are numbered as they are met; numbers never leave the process.
    """

    name: ClassVar[str] = "TaintToleration"
    static: ClassVar[bool] = True
    wide: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.DOWN
    cures: ClassVar[Mapping[str, frozenset[Change]]] = {"UntoleratedTaint": frozenset((Change.TAINTS,))}

    def __init__(self) -> None:
        self._numbers: dict[Taint, int] = {}

    def new_ledger(self) -> None:
        """No account of its own."""

    def trial(self, room: Room, ledger: Ledger | None, now_ns: int) -> Trial:  # noqa: ARG002
        """Raw score: how many PreferNoSchedule taints the pod does not tolerate; fewer is better."""
        return StaticTrial(self, room.table, tolerations_of, self._judge, _count_soft)

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first taint that is not tolerated, as `key=value:effect`."""
        taint = next(taint for taint, number in self._numbers.items() if number == verdict)
        value = f"={taint.value}" if taint.value else ""
        return (Reason("UntoleratedTaint", f"{taint.key}{value}:{taint.effect}"),)

    def hopeless(self, ask: PodAsk, verdict: int) -> bool:  # noqa: ARG002
        """Whatever goes, the taint stays."""
        return True

    def _judge(self, table: NodeTable, ask: PodAsk, rows: Rows) -> NDArray[np.int64]:
        tolerations = ask.pod.spec.tolerations
        by_set = np.zeros(len(table.taints), np.int64)
        for number, taints in enumerate(table.taints):
            for taint in taints:
                if taint.effect in _HARD and not any(tolerates(toleration, taint) for toleration in tolerations):
                    by_set[number] = self._numbers.setdefault(taint, len(self._numbers) + 1)
                    break
        return by_set[table.taint_set[rows]]


def all_tolerated(table: NodeTable, ask: PodAsk) -> NDArray[np.bool_]:
    """bool[rows]: which nodes have no hard taint that the pod does not tolerate."""
    tolerations = ask.pod.spec.tolerations
    by_set = np.array(
        [
            all(taint.effect not in _HARD or any(tolerates(t, taint) for t in tolerations) for taint in taints)
            for taints in table.taints
        ]
    )
    tolerated: NDArray[np.bool_] = by_set[table.taint_set[: table.size]]
    return tolerated


def tolerations_of(ask: PodAsk) -> tuple[Toleration, ...]:
    """What the taint plugins read of a pod."""
    return ask.pod.spec.tolerations


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: effect and key equal or empty, and the value equal unless it only has to exist."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    return operator == "Exists" or (operator == "Equal" and toleration.value == taint.value)


def _count_soft(table: NodeTable, ask: PodAsk, rows: Rows) -> NDArray[np.int64]:
    tolerations = [t for t in ask.pod.spec.tolerations if t.effect in ("", _SOFT)]
    by_set = np.array(
        [
            sum(taint.effect == _SOFT and not any(tolerates(t, taint) for t in tolerations) for taint in taints)
            for taints in table.taints
        ],
        np.int64,
    )
    return by_set[table.taint_set[rows]]
