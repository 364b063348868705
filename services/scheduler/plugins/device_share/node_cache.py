"""Cache of all nodes with their devices, by row: what each offers, and the allocations of its pods.

A function of the nodes, their Devices and the placements. Nodes in one state (equal devices, equal use) share one
CachedDevices, so that a class of pods is evaluated once for each state, not once for each node. Nodes of one model that
fill up with equal pods pass through the same states.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.device_share.admission_to_one_node import (
    DeviceAdmission,
    DeviceSettings,
    DevicesInUse,
)
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.device_share.device_usage import Allocation, DeviceUsage
from services.scheduler.plugins.device_share.devices_of_node import NO_DEVICES, NodeDevices
from services.scheduler.plugins.device_share.node_debug_view import node_view
from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices, device_resources
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
        number: identifies the state within its cache; it is positive, and never used again.
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


class DeviceCache(PluginCache):
    """Cache of one plugin.

    Attributes:
        known: bool[rows]: the node has a Device, so that devices are allocated there.
    """

    def __init__(self) -> None:
        self.known: Bools = np.zeros(0, np.bool_)
        self._nodes: dict[int, Node] = {}
        self._rows: dict[str, int] = {}
        self._reported: dict[str, Device] = {}
        self._devices: dict[int, NodeDevices] = {}
        self._pods: dict[int, dict[str, Allocation]] = {}
        self._states: dict[int, CachedDevices] = {}
        self._numbers: Int64 = np.zeros(0, np.int64)  # of the state by row; 0: not computed
        # A state that no node and no cycle refers to is dropped, so their number is bounded by that of the nodes.
        self._by_key: WeakValueDictionary[Hashable, CachedDevices] = WeakValueDictionary()
        self._latest: OrderedDict[int, CachedDevices] = OrderedDict()
        self._count = count(1)
        self._transitions: OrderedDict[tuple[int, Allocation], CachedDevices] = OrderedDict()

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns False for pods without devices."""
        return bool(device_resources(pod_class.request))

    # updates by the cycle inputs

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        before = self._nodes.pop(row, None)
        if before is not None and self._rows.get(before.metadata.name) == row:
            del self._rows[before.metadata.name]
        if node is not None:
            self._nodes[row] = node
            self._rows[node.metadata.name] = row
        self._set_devices(row)

    def set_device(self, name: str, device: Device | None) -> None:
        """Sets the Device of that name, None when it is deleted."""
        self._reported.pop(name, None)
        if device is not None:
            self._reported[name] = device
        if name in self._rows:
            self._set_devices(self._rows[name])

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the devices in the pod's allocation, if there are any."""
        if allocation := allocation_of(assignment.allocation):
            self._pods.setdefault(row, {})[uid] = allocation
            before = self._states.get(row)
            self._drop_state(row)
            if before is not None:
                self._states[row] = self.after(row, before, allocation)

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (it is known by its uid)
        """Counts the pod's devices no longer."""
        pods = self._pods.get(row, {})
        if pods.pop(uid, None) is not None:
            self._drop_state(row)
            if not pods:
                del self._pods[row]

    # reads of a cycle

    def sized(self, size: int) -> Bools:
        """`known` of so many rows."""
        self._reach(size)
        return self.known[:size]

    def devices(self, row: int) -> NodeDevices:
        """The devices of a node, with their ids."""
        return self._devices.get(row, NO_DEVICES)

    def allocations(self, row: int) -> list[Allocation]:
        """The allocations of the pods of a node."""
        return list(self._pods.get(row, {}).values())

    def view(self, row: int) -> dict[str, Any]:
        """The devices of the node in a row with the pods that use them, for the debug view."""
        return node_view(self.devices(row), self.state(row).node.usage, self._pods.get(row, {}))

    def state(self, row: int, more: Sequence[Allocation] = (), gone: Iterable[Allocation] = ()) -> CachedDevices:
        """The state of the node in a row, with more allocations of the cycle and without those of removed pods."""
        left = list(gone)
        if left:
            allocated = self.allocations(row)
            for allocation in left:
                allocated.remove(allocation)
            return self._of(row, [*allocated, *more])
        state = self._states.get(row)
        if state is None:
            state = self._states[row] = self._of(row, self.allocations(row))
        for number, allocation in enumerate(more):
            state = self.after(row, state, allocation, more[: number + 1])
        return state

    def after(
        self, row: int, state: CachedDevices, allocation: Allocation, more: Sequence[Allocation] = ()
    ) -> CachedDevices:
        """The state with one more allocation, which is among those of the node's pods and `more`."""
        key = state.number, allocation
        found = self._transitions.get(key)
        if found is None:
            found = self._transitions[key] = self._of(row, [*self.allocations(row), *more])
            if len(self._transitions) > MAX_TRANSITIONS:
                self._transitions.popitem(last=False)
        else:
            self._transitions.move_to_end(key)
        return found

    def state_numbers(self, rows: Int64) -> Int64:
        """int64[all rows]: the numbers of the nodes' states, valid in these rows."""
        numbers = self._numbers
        for row in rows[numbers[rows] == 0].tolist():
            numbers[row] = self.state(row).number
        return numbers

    def _of(self, row: int, allocations: Iterable[Allocation]) -> CachedDevices:
        devices, usage = self.devices(row), DeviceUsage(allocations)
        key = devices.key, usage.key
        state = self._by_key.get(key)
        if state is None:
            state = self._by_key[key] = CachedDevices(DevicesInUse(devices, usage), next(self._count))
        self._latest[state.number] = state
        self._latest.move_to_end(state.number)
        if len(self._latest) > MAX_UNUSED:
            self._latest.popitem(last=False)
        return state

    def _drop_state(self, row: int) -> None:
        self._states.pop(row, None)
        self._reach(row + 1)
        self._numbers[row] = 0

    def _set_devices(self, row: int) -> None:
        node = self._nodes.get(row)
        self._drop_state(row)
        if node is None:
            self._devices.pop(row, None)
        else:
            reported = self._reported.get(node.metadata.name)
            self._devices[row] = NodeDevices(reported, node.metadata.labels or {})
        self.known[row] = self.devices(row).known

    def _reach(self, size: int) -> None:
        if size > len(self.known):
            grown = 2 * size - len(self.known)
            self.known = np.concatenate((self.known, np.zeros(grown, np.bool_)))
            self._numbers = np.concatenate((self._numbers, np.zeros(grown, np.int64)))
