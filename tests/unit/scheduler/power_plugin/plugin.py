"""NodePower: filter, score, cache and debug view."""

from typing import Any, ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.node import Node
from tests.unit.scheduler.power_plugin import SPEC

ANNOTATION = "example.com/power-watts"


class NodePower(Plugin):
    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, min_watts: int) -> None:
        self.min_watts = min_watts

    def new_cache(self) -> PluginCache:
        return PowerCache()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        assert isinstance(plugin_cache, PowerCache)
        watts = np.array([plugin_cache.watts.get(row, 0) for row in range(snapshot.size)], np.int64)
        return PowerState(watts, self.min_watts)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        return (Reason("InsufficientPower", str(self.min_watts)),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:
        return True


class PowerCache(PluginCache):
    def __init__(self) -> None:
        self.watts: dict[int, int] = {}

    def set_node(self, row: int, node: Node | None) -> None:
        self.watts[row] = int(((node.metadata.annotations or {}) if node else {}).get(ANNOTATION, "0"))

    def view(self, row: int) -> dict[str, Any]:
        return {"watts": self.watts.get(row, 0)}


class PowerState(PluginCycleState):
    def __init__(self, watts: Int64, min_watts: int) -> None:
        self._watts = watts
        self._min_watts = min_watts

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64:
        return (self._watts[rows] < self._min_watts).astype(np.int64)

    def score(self, pod_class: PodClass, rows: Rows) -> Int64:
        return np.minimum(self._watts[rows] // 10, 100)
