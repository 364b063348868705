"""State of device discovery: the devices of each node as they were last recorded, and the pods that have them."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from shared.agents.device_inventory import DeviceFound, device_key
from shared.domain.own_desired_states import DesiredFields, OwnDesiredStates, object_key
from shared.events import Cause, Event, RecordedEvent
from shared.events.base import without_basis
from shared.events.cluster import (
    DesiredStateSuperseded,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    PodBound,
    PodDeleted,
    PodObserved,
)
from shared.events.devices import (
    DEVICE_EVENTS,
    NODE,
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    DeviceUser,
    NodeDevicesRemoved,
    NodeDevicesReported,
)
from shared.events.intents import ObjectDesired
from shared.kube.allocated_devices import read_allocated_devices
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.resource_names import DEVICES
from shared.kube.system_annotations import DEVICE_ALLOCATED

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodBound, PodDeleted, ObjectDeleted, DesiredStateSuperseded,
    ),
    "devices-*": (*DEVICE_EVENTS, NodeDevicesReported, NodeDevicesRemoved, ObjectDesired),
}  # fmt: skip
"""Context -> event types that are folded; all others are skipped."""

DeviceEvent = DeviceAppeared | DeviceHealthChanged | DeviceChanged | DeviceDisappeared

_OVERCOMMITTED = ("kubernetes.io/batch-", "kubernetes.io/mid-")


class DeviceEntry(NamedTuple):
    """A device as it was last recorded; one that disappeared stays, so that an older inventory cannot bring it back.

    Attributes:
        boot, number, at_ns: of the inventory that was recorded.
        is_there: it has not disappeared.
        health_since_ns, since_ns: as in DeviceAppeared; 0 and empty once it has disappeared.
    """

    boot: str
    number: int
    at_ns: int
    found: DeviceFound
    is_there: bool = True
    health_since_ns: int = 0
    since_ns: dict[str, int] = {}  # noqa: RUF012  a default that nobody writes to


class PodDevices(NamedTuple):
    """A pod that requests devices.

    Attributes:
        pod: `namespace/name`.
        node: empty until it is bound.
        devices: `TYPE/MINOR` of each that the scheduler gave to it.
        is_there: it was observed, and has not ended since.
        bound_seq: in `cluster`, of its binding; 0 before.
    """

    pod: str
    node: str = ""
    devices: tuple[str, ...] = ()
    is_there: bool = False
    bound_seq: int = 0


class DiscoveryState(OwnDesiredStates):
    """A fold over `cluster` and the service's own `devices-*`.

    Attributes:
        nodes: nodes of the cluster -> their uid.
        devices: node -> `TYPE/MINOR` -> the device.
        reported: node -> the newest event about its inventories as a whole.
        desired_by: node -> the newest event that desires its Device to exist.
        replaced_seq: node -> shard -> seq of its newest event about the node's Device that a later one has replaced.
        pods: uid -> a pod that requests devices, until it ends.
        changed: nodes that changed since the last decision about their Device; derived.
    """

    SCHEMA: ClassVar[int] = 3

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, int] = {}
        self.nodes: dict[str, str] = {}
        self.devices: dict[str, dict[str, DeviceEntry]] = {}
        self.reported: dict[str, NodeDevicesReported] = {}
        self.desired_by: dict[str, Cause] = {}
        self.replaced_seq: dict[str, dict[str, int]] = {}
        self.pods: dict[str, PodDevices] = {}
        self.changed: dict[str, None] = {}
        self._pods_of_node: dict[str, dict[str, None]] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        if record.context == "cluster":
            self._apply_cluster(record)
        else:
            self._fold_desired(record.event)
            self._apply_own(record)
        self.positions[record.context] = record.seq

    def _apply_cluster(self, record: RecordedEvent) -> None:
        match record.event:
            case NodeObserved(node=node, object=object_):
                if self.nodes.get(node) != object_.metadata.uid:
                    self.nodes[node] = object_.metadata.uid
                    self.changed[node] = None
            case NodeDeleted(node=node):
                self.nodes.pop(node, None)
                self.replaced_seq.pop(node, None)
                self.changed[node] = None
            case PodBound(pod=pod, pod_uid=uid, node=node, allocations=allocations):
                if devices := allocated_devices(allocations.get(DEVICE_ALLOCATED, "")):
                    is_there = uid in self.pods and self.pods[uid].is_there
                    self._set_pod(uid, PodDevices(pod, node, devices, is_there, record.seq))
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                if pod.status.phase in ENDED_PHASES:
                    self._remove_pod(uid)
                elif (uid not in self.pods or not self.pods[uid].is_there) and requests_devices(pod):
                    self._set_pod(uid, self.pods.get(uid, PodDevices(key))._replace(is_there=True))
            case PodDeleted(pod_uid=uid):
                self._remove_pod(uid)
            case ObjectDeleted(resource=resource, name=name) if resource == DEVICES:
                self._end_desired(object_key(resource, name), record.seq)
                self.changed[name] = None
            case DesiredStateSuperseded(resource=resource, name=name) if resource == DEVICES and record.cause:
                replaced, shard = self.replaced_seq.setdefault(name, {}), record.cause.context
                replaced[shard] = max(record.cause.seq, replaced.get(shard, 0))
                self.changed[name] = None

    def _apply_own(self, record: RecordedEvent) -> None:
        event = record.event
        match event:
            case ObjectDesired(resource=resource, name=name, body=body) if resource == DEVICES:
                self.desired_by.pop(name, None)
                if body is not None:
                    self.desired_by[name] = Cause(record.context, record.seq)
            case DeviceDisappeared(why=why) if why == NODE:
                # Not kept until NodeDevicesRemoved: retention may keep this event, and not that one.
                self.devices.get(event.node, {}).pop(device_key(event.found), None)
                if not self.devices.get(event.node, True):
                    del self.devices[event.node]
                self.changed[event.node] = None
            case DeviceAppeared() | DeviceHealthChanged() | DeviceChanged() | DeviceDisappeared():
                self.devices.setdefault(event.node, {})[device_key(event.found)] = entry_of(event)
                self.changed[event.node] = None
            case NodeDevicesReported(node=node):
                self.reported[node] = without_basis(event)
                self.changed[node] = None
            case NodeDevicesRemoved(node=node, moved=moved):
                self.devices.pop(node, None)
                self.reported.pop(node, None)
                if moved:
                    self.desired_fields.pop(object_key(DEVICES, node), None)
                    self.desired_by.pop(node, None)
                self.changed[node] = None

    def history_begins(self, context: str, seq: int) -> None:
        """Forgets bindings of pods that were gone: an outcome is kept beside its intent, longer than its pod."""
        if context == "cluster":
            gone = [uid for uid, pod in self.pods.items() if not pod.is_there and pod.bound_seq <= seq]
            for uid in gone:
                self._remove_pod(uid)

    def has_moved(self, node: str) -> bool:
        """Reports whether another shard has desired the node's Device after this one, and so has its inventories."""
        if self.desired(DEVICES, node) is None or (newest := self.desired_by.get(node)) is None:
            return False
        return self.replaced_seq.get(node, {}).get(newest.context, 0) >= newest.seq

    def there(self, node: str) -> dict[str, DeviceEntry]:
        """Returns the devices of a node that have not disappeared, by `TYPE/MINOR`."""
        return {key: entry for key, entry in self.devices.get(node, {}).items() if entry.is_there}

    def users(self, node: str, device: str) -> tuple[DeviceUser, ...]:
        """Returns the pods that have a device, by name."""
        pods = ((uid, self.pods[uid]) for uid in self._pods_of_node.get(node, ()))
        found = [DeviceUser(pod.pod, uid) for uid, pod in pods if pod.is_there and device in pod.devices]
        return tuple(sorted(found, key=lambda user: (user.pod, user.pod_uid)))

    def _set_pod(self, uid: str, pod: PodDevices) -> None:
        self._remove_pod(uid)
        self.pods[uid] = pod
        if pod.node:
            self._pods_of_node.setdefault(pod.node, {})[uid] = None

    def _remove_pod(self, uid: str) -> None:
        if (pod := self.pods.pop(uid, None)) is not None and pod.node:
            del self._pods_of_node[pod.node][uid]
            if not self._pods_of_node[pod.node]:
                del self._pods_of_node[pod.node]

    def encode(self) -> bytes:
        """Returns the canonical encoding: see `shared.fold.State`."""
        return _ENCODER.encode({name: getattr(self, name) for name in _FIELDS})

    def restore(self, data: bytes) -> None:
        """Replaces the State by one that `encode` wrote."""
        stored = _DECODER.decode(data)
        for name in _FIELDS:
            setattr(self, name, getattr(stored, name))
        self._restore_deletions()
        self._pods_of_node = {}
        for uid, pod in self.pods.items():
            if pod.node:
                self._pods_of_node.setdefault(pod.node, {})[uid] = None
        self.changed = dict.fromkeys((*self.nodes, *self.reported))


def entry_of(event: DeviceEvent) -> DeviceEntry:
    """Returns the entry that an event about a device leaves."""
    if isinstance(event, DeviceDisappeared):
        return DeviceEntry(event.boot, event.number, event.at_ns, event.found, is_there=False)
    return DeviceEntry(
        event.boot,
        event.number,
        event.at_ns,
        event.found,
        health_since_ns=event.health_since_ns,
        since_ns=event.since_ns,
    )


def requests_devices(pod: Pod) -> bool:
    """Reports whether a pod may get devices: it requests a resource that is neither Kubernetes' own nor overcommitted."""
    return any(
        "/" in name and not name.startswith(_OVERCOMMITTED)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if container.resources is not None
        for name in container.resources.requests or ()
    )


def allocated_devices(annotation: str) -> tuple[str, ...]:
    """Returns `TYPE/MINOR` of the devices in an allocation; one that cannot be read has none."""
    if not annotation:
        return ()
    try:
        read = read_allocated_devices(annotation)
    except msgspec.MsgspecError:
        return ()
    return tuple(sorted({f"{type_}/{device.minor}" for type_, devices in read.items() for device in devices}))


def all_devices(state: DiscoveryState) -> Iterator[DeviceEntry]:
    """Yields the devices of all nodes that have not disappeared."""
    for entries in state.devices.values():
        yield from (entry for entry in entries.values() if entry.is_there)


class _Stored(msgspec.Struct):
    """The layout that `encode` writes."""

    positions: dict[str, int]
    nodes: dict[str, str]
    devices: dict[str, dict[str, DeviceEntry]]
    reported: dict[str, NodeDevicesReported]
    desired_by: dict[str, Cause]
    replaced_seq: dict[str, dict[str, int]]
    pods: dict[str, PodDevices]
    desired_fields: dict[str, dict[str, DesiredFields]]
    cluster_seen: int
    deleted_at: dict[str, list[int]]


_FIELDS: tuple[str, ...] = tuple(field.name for field in msgspec.structs.fields(_Stored))
_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_Stored)
