"""The GPUs of all nodes with what is free of each, in percent, by row; and the pods that are assigned, by type.

A function of the nodes, their Devices and the placements.
"""

from collections import Counter

import numpy as np

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.device_share.device_usage import Allocation
from services.scheduler.plugins.gpu_packing.pod_types import WHOLE, PodType, type_of
from services.scheduler.plugins.helper.node_state_cache import longer
from services.scheduler.plugins.helper.nodes_with_objects import NodesWithObjects
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.device_requests import CORE, RATIO
from shared.kube.device import GPU, Device
from shared.kube.node import Node

MAX_GPUS = 16
"""Number of GPUs of a node that count: those with the smallest minors."""


class FreeGpuCache(PluginCache):
    """Cache of one plugin.

    Attributes:
        free: int64[rows, GPUs], percent that is free of each.
        gpus: int64[rows], the number of healthy GPUs.
        models: row -> model of its GPUs, by the label.
        assigned: type -> number of pods.
        version: grows with every change of `assigned`.
    """

    def __init__(self, model_label: str) -> None:
        self.free: Int64 = np.zeros((0, MAX_GPUS), np.int64)
        self.gpus: Int64 = np.zeros(0, np.int64)
        self.models: dict[int, str] = {}
        self.assigned: Counter[PodType] = Counter()
        self._label = model_label
        self._nodes: NodesWithObjects[Device] = NodesWithObjects()
        self._places: dict[int, dict[int, int]] = {}  # row -> minor -> place in `free`
        self._pods: dict[int, dict[str, Allocation]] = {}

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        self._nodes.set_node(row, node)
        self.models.pop(row, None)
        if node is not None:
            self.models[row] = (node.metadata.labels or {}).get(self._label, "")
        self._set_gpus(row)

    def set_device(self, name: str, device: Device | None) -> None:
        """Sets the Device of that name, None when it is deleted."""
        if (row := self._nodes.set_object(name, device)) is not None:
            self._set_gpus(row)

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts a pod."""
        self.assigned[type_of(assignment.pod_class, self)] += 1
        if allocation := allocation_of(assignment.allocation):
            self._pods.setdefault(row, {})[uid] = allocation
            self._reach(row + 1)
            self.move(self.free, row, allocation, -1)

    def release(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the pod no longer."""
        self.assigned[type_of(assignment.pod_class, self)] -= 1
        if (allocation := self._pods.get(row, {}).pop(uid, None)) is not None:
            self.move(self.free, row, allocation, +1)

    def move(self, free: Int64, row: int, allocation: Allocation, sign: int) -> None:
        """Takes an allocation off free amounts (-1), or gives it back (+1)."""
        places = self._places.get(row, {})
        for device in allocation:
            if device.type == GPU and (place := places.get(device.minor)) is not None:
                amounts = dict(device.amounts)
                free[row, place] += sign * max(amounts.get(RATIO, 0), amounts.get(CORE, 0))

    def sized(self, size: int) -> tuple[Int64, Int64]:
        """`free` and `gpus` of so many rows."""
        self._reach(size)
        return self.free[:size], self.gpus[:size]

    def _set_gpus(self, row: int) -> None:
        self._reach(row + 1)
        device = self._nodes.object_of(row)
        listed = device.spec.devices if device is not None else ()
        minors = sorted({each.minor for each in listed if each.type == GPU and each.health and each.minor is not None})[
            :MAX_GPUS
        ]
        self._places[row] = {minor: place for place, minor in enumerate(minors)}
        self.gpus[row] = len(minors)
        self.free[row] = 0
        self.free[row, : len(minors)] = WHOLE
        for allocation in self._pods.get(row, {}).values():
            self.move(self.free, row, allocation, -1)

    def _reach(self, size: int) -> None:
        if size > len(self.gpus):
            self.gpus, self.free = longer(self.gpus, 2 * size), longer(self.free, 2 * size)
