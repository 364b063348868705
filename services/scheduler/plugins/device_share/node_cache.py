"""Cache of all nodes with their devices, by row: what each offers, and the allocations of its pods.

A function of the nodes, their Devices and the placements. Nodes in one state (equal devices, equal use) share one
CachedDevices, so that a class of pods is evaluated once for each state, not once for each node. Nodes of one model that
fill up with equal pods pass through the same states.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.device_share.device_usage import Allocation, DevicesInUse, DeviceUsage
from services.scheduler.plugins.device_share.devices_of_node import LOST_DEVICES, NO_DEVICES, NodeDevices
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import (
    DeviceAdmission,
    DeviceSettings,
)
from services.scheduler.plugins.device_share.node_debug_view import node_view
from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices, device_resources
from services.scheduler.plugins.device_share.results_by_state import ResultsByClass
from services.scheduler.plugins.helper.equivalent_states import EquivalentStates
from services.scheduler.plugins.helper.node_state_cache import NodeStateCache, longer
from services.scheduler.plugins.helper.nodes_with_objects import NodesWithObjects
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.kube.device import Device
from shared.kube.node import Node

MAX_CLASSES = 64
"""Number of classes whose results a state keeps."""

MAX_UNUSED = 1024
"""Number of states kept beyond those that a node is in: the next node to fill up often enters one of them."""

MAX_TRANSITIONS = 4096
"""Number of (state, one more allocation) of which the next state is kept."""

Templates = Mapping[str, tuple[str, ...]] | None


class CachedDevices:
    """A state with the cached admissions of classes.

    Attributes:
        number: see `EquivalentStates`.
    """

    __slots__ = ("__weakref__", "_admissions", "node", "number")

    def __init__(self, node: DevicesInUse, number: int) -> None:
        self.node = node
        self.number = number
        self._admissions: dict[Hashable, DeviceAdmission] = {}

    def admission(self, requested: RequestedDevices, settings: DeviceSettings, templates: Templates) -> DeviceAdmission:
        """The admission of a class to a node in this state."""
        key = requested.key if templates is None else (requested.key, tuple(templates.items()))
        admission = self._admissions.get(key)
        if admission is None:
            if len(self._admissions) >= MAX_CLASSES:
                self._admissions.clear()
            admission = self._admissions[key] = DeviceAdmission(requested.requests, self.node, settings, templates)
        return admission


class DeviceCache(NodeStateCache[Allocation, Allocation, CachedDevices]):
    """Cache of one plugin.

    Attributes:
        known: bool[rows]: the node has a Device, or had one, so that devices are allocated there or nowhere.
        results: of classes, by the numbers of states.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: Bools = np.zeros(0, np.bool_)
        self.results = ResultsByClass()
        self._nodes: NodesWithObjects[Device] = NodesWithObjects()
        self._devices: dict[int, NodeDevices] = {}
        self._equivalent: EquivalentStates[CachedDevices] = EquivalentStates(MAX_UNUSED, MAX_TRANSITIONS)

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns False for pods without devices."""
        return bool(device_resources(pod_class.request))

    # updates by the cycle inputs

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        self._nodes.set_node(row, node)
        self._set_devices(row)

    def set_device(self, name: str, device: Device | None) -> None:
        """Sets the Device of that name, None when it is deleted."""
        if (row := self._nodes.set_object(name, device)) is not None:
            self._set_devices(row)

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the devices in the pod's allocation, if there are any."""
        if allocation := allocation_of(assignment.allocation):
            state = self._states.get(row) if self.devices(row).known else None
            after = None if state is None else self.after(row, state, allocation)
            self._pods.setdefault(row, {})[uid] = allocation
            self._drop_state(row)
            if after is not None:
                self._states[row] = after
            self.known[row] = True

    def release(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the pod's devices no longer."""
        super().release(row, uid, assignment)
        self._reach(row + 1)
        self.known[row] = self.devices(row).known

    # reads of a cycle

    def sized(self, size: int) -> Bools:
        """`known` of so many rows."""
        self._reach(size)
        return self.known[:size]

    def devices(self, row: int) -> NodeDevices:
        """The devices of a node, with their ids."""
        devices = self._devices.get(row, NO_DEVICES)
        return LOST_DEVICES if row in self._pods and not devices.known else devices

    def allocations(self, row: int) -> list[Allocation]:
        """The allocations of the pods of a node."""
        return list(self._pods.get(row, {}).values())

    def view(self, row: int) -> dict[str, Any]:
        """The devices of the node in a row with the pods that use them, for the debug view."""
        return node_view(self.devices(row), self.state(row).node.usage, self._pods.get(row, {}))

    def after(
        self, row: int, state: CachedDevices, allocation: Allocation, more: Sequence[Allocation] = ()
    ) -> CachedDevices:
        """The state with one more allocation, where `state` contains those of the node's pods and `more`."""

        def found() -> CachedDevices:
            return self._of(row, [*self.allocations(row), *more, allocation])

        return self._equivalent.after(state, allocation, allocation, found)

    def _of(self, row: int, allocations: Iterable[Allocation]) -> CachedDevices:
        devices, usage = self.devices(row), DeviceUsage(allocations)

        def made(number: int) -> CachedDevices:
            return CachedDevices(DevicesInUse(devices, usage), number)

        return self._equivalent.of((devices.key, usage.key), made)

    def _set_devices(self, row: int) -> None:
        node = self._nodes.node(row)
        self._drop_state(row)
        if node is None:
            self._devices.pop(row, None)
        else:
            self._devices[row] = NodeDevices(self._nodes.object_of(row), node.metadata.labels or {})
        self.known[row] = self.devices(row).known

    def _reach(self, size: int) -> None:
        super()._reach(size)
        if len(self.known) < len(self._numbers):
            self.known = longer(self.known, len(self._numbers))
