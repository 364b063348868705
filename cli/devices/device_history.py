"""The recorded history of one device: its changes, from device discovery or from its node's Device object, and the pods
that had it.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.state.scheduler_state import SchedulerState
from shared.agents.device_inventory import DeviceCondition, DeviceFound
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved, PodBound, PodDeleted, PodObserved
from shared.events.devices import (
    DEVICE_EVENTS,
    MISSING,
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    DeviceUser,
)
from shared.kube.amounts_as_text import read_object
from shared.kube.device import Device, DeviceInfo
from shared.kube.pod import ENDED_PHASES
from shared.kube.quantity import BadQuantity, amounts
from shared.kube.resource_names import DEVICES
from shared.kube.system_annotations import DEVICE_ALLOCATED
from shared.log.codec import Codec
from shared.log.reader import LogReader, read_record, recorded

_FIELDS = tuple(field.name for field in msgspec.structs.fields(DeviceFound))


class DeviceName(NamedTuple):
    """A device of a node."""

    node: str
    type: str
    minor: int

    def __str__(self) -> str:
        return f"{self.node}/{self.type}/{self.minor}"


class Change(NamedTuple):
    """A change of a device.

    Attributes:
        event: `context/seq`.
        recorded_ns: of the append; at_ns: when the node's agent read its devices, or of the append where only the
            Device object is known.
        kind: `gone` where the device disappeared.
        found: the device after the change; as it was where it disappeared.
        before: None where it was not there.
        reason, message: of its health; of `gone`: `missing`, `replaced` or `node`.
        pods: those that had it then, as far as the event names them.
    """

    event: str
    recorded_ns: int
    at_ns: int
    kind: Literal["appeared", "health", "changed", "gone"]
    found: DeviceFound
    before: DeviceFound | None
    reason: str = ""
    message: str = ""
    pods: tuple[DeviceUser, ...] = ()


class Use(NamedTuple):
    """A pod that has or had the device, or a part of it.

    Attributes:
        pod: `namespace/name`.
        since_ns: when its binding was recorded; 0 where the log no longer has that.
        until_ns: when its end was recorded; 0 where it has not ended.
        amounts: resource -> amount.
    """

    pod: str
    pod_uid: str
    since_ns: int
    until_ns: int
    amounts: dict[str, int]


async def discovered_changes(log: LogReader, name: DeviceName) -> list[Change]:
    """Returns what device discovery recorded about a device, oldest first."""
    codec, records = Codec(DEVICE_EVENTS), list[RecordedEvent]()
    for context in await log.contexts():
        if context.startswith("devices-"):
            found = [read_record(row, codec) async for row in log.rows(context=context, key=str(name))]
            records += [record for record in found if record is not None]
    return list(recorded_changes(sorted(records, key=lambda record: (record.at_ns, record.seq))))


def recorded_changes(records: Sequence[RecordedEvent]) -> Iterator[Change]:
    """Yields what the events about one device say, oldest first, of all shards that recorded it."""
    before: DeviceFound | None = None
    shard = ""  # that recorded the device, while it is there
    for record in records:
        event: Any = record.event
        place = (f"{record.context}/{record.seq}", record.at_ns, event.at_ns)
        has_moved, shard = shard not in ("", record.context), record.context
        match event:
            case DeviceAppeared(found=found) if before is not None and has_moved and found.id == before.id:
                # Another shard has the node since: to the device nothing has happened.
                if found.health != before.health:
                    yield Change(*place, "health", found, before, *health_reason(found))
                elif changed_fields(before, found):
                    yield Change(*place, "changed", found, before)
            case DeviceAppeared(found=found):
                yield Change(*place, "appeared", found, before)
            case DeviceHealthChanged(found=found, reason=reason, message=message, pods=pods):
                yield Change(*place, "health", found, before, reason, message, pods)
            case DeviceChanged(found=found):
                yield Change(*place, "changed", found, before)
            case DeviceDisappeared(found=found, why=why, pods=pods):
                yield Change(*place, "gone", found, before, why, "", pods)
                shard = ""
        before = event.found


async def observed_changes(log: LogReader, name: DeviceName) -> list[Change]:
    """Returns what the observations of the node's Device object say about a device, oldest first: all there is where
    another agent writes the Devices of the cluster.
    """
    if "cluster" not in await log.contexts():
        return []
    codec, found = Codec([ObjectObserved, ObjectDeleted]), list[Change]()
    before: DeviceFound | None = None
    async for row in log.rows(context="cluster", key=name.node):
        record = read_record(row, codec)
        if record is None or not isinstance(record.event, ObjectObserved | ObjectDeleted):
            continue
        if record.event.resource != DEVICES:
            continue
        after = _in_object(record.event, name)
        place = (f"{record.context}/{record.seq}", record.at_ns, record.at_ns)
        if after is None and before is not None:
            found.append(Change(*place, "gone", before, before, MISSING))
        elif after is not None and before is None:
            found.append(Change(*place, "appeared", after, None))
        elif after is not None and before is not None and after != before:
            kind: Literal["health", "changed"] = "health" if after.health != before.health else "changed"
            reason, message = health_reason(after)
            found.append(Change(*place, kind, after, before, *((reason, message) if kind == "health" else ())))
        before = after
    return found


def _in_object(event: ObjectObserved | ObjectDeleted, name: DeviceName) -> DeviceFound | None:
    if isinstance(event, ObjectDeleted):
        return None
    for info in devices_of(event.object):
        if (info.type, info.minor) == (name.type, name.minor):
            return _as_found(info)
    return None


def devices_of(body: dict[str, Any]) -> tuple[DeviceInfo, ...]:
    """Returns the devices of a Device object; none where it cannot be read."""
    try:
        return read_object(body, Device).spec.devices
    except msgspec.ValidationError:
        return ()


def _as_found(info: DeviceInfo) -> DeviceFound:
    resources: dict[str, int] = {}
    with suppress(BadQuantity):
        resources = amounts(info.resources or {})
    return DeviceFound(
        type=info.type,
        minor=info.minor or 0,
        health=info.health,
        id=info.id,
        resources=resources,
        numa=info.topology.numa if info.topology is not None else -1,
        pcie_switch=info.topology.pcie if info.topology is not None else "",
        labels=info.labels or {},
    )


def health_reason(found: DeviceFound) -> tuple[str, str]:
    """Returns the reason and the message of the condition that explains a device's health; empty without one."""
    status = "True" if found.health else "False"
    fitting = (each for each in found.conditions if each.type == "Healthy" and each.status == status)
    condition: DeviceCondition | None = next(fitting, None)
    return ("", "") if condition is None else (condition.reason, condition.message)


def changed_fields(before: DeviceFound | None, after: DeviceFound) -> list[str]:
    """Returns the names of the fields that differ, without those that the health explains."""
    if before is None:
        return []
    return [
        name
        for name in _FIELDS
        if name not in ("health", "conditions") and getattr(before, name) != getattr(after, name)
    ]


async def uses_of(log: LogReader, view: SchedulerState, name: DeviceName, since: datetime) -> list[Use]:
    """Returns the pods that have the device, and those that were bound with it since an instant, oldest first."""
    found = {use.pod_uid: use for use in _current(view, name)}
    for record, event in await _bound_with(log, name, since):
        if (amounts_ := _share(event.allocations, name)) is None:
            continue
        is_current = event.pod_uid in found
        until_ns = 0 if is_current else await _end_of(log, event)
        found[event.pod_uid] = Use(event.pod, event.pod_uid, record.at_ns, until_ns, amounts_)
    return sorted(found.values(), key=lambda use: (use.since_ns, use.pod))


def _current(view: SchedulerState, name: DeviceName) -> Iterator[Use]:
    for uid, pod in view.pods.items():
        assignment = pod.assignment() if pod.node_or_placement() == name.node else None
        if assignment is not None and (amounts_ := _share(assignment.allocation or {}, name)) is not None:
            yield Use(pod.name, uid, 0, 0, amounts_)


def _share(annotations: dict[str, str], name: DeviceName) -> dict[str, int] | None:
    """Returns the amounts of the device in an allocation; None where the device is not in it."""
    parts = [each for each in allocation_of(annotations) if (each.type, each.minor) == (name.type, name.minor)]
    if not parts:
        return None
    total: dict[str, int] = {}
    for each in parts:
        for resource, size in each.amounts:
            total[resource] = total.get(resource, 0) + size
    return total


async def _bound_with(log: LogReader, name: DeviceName, since: datetime) -> list[tuple[RecordedEvent, PodBound]]:
    """Returns the bindings to the node with devices since an instant."""
    if "cluster" not in await log.contexts():
        return []
    codec, found = Codec([PodBound]), list[tuple[RecordedEvent, PodBound]]()
    needle = DEVICE_ALLOCATED.encode()
    async for row in log.rows(context="cluster", kind=PodBound.__name__, since=since):
        event = codec.one(row.type, row.data) if needle in row.data else None
        if isinstance(event, PodBound) and event.node == name.node:
            found.append((recorded(row, event), event))
    return found


async def _end_of(log: LogReader, bound: PodBound) -> int:
    """Returns when the end of a pod was recorded; 0 where the log does not have it."""
    codec = Codec([PodObserved, PodDeleted])
    async for row in log.rows(context="cluster", key=bound.pod):
        event = codec.one(row.type, row.data)
        if isinstance(event, PodDeleted) and event.pod_uid == bound.pod_uid:
            return recorded(row, event).at_ns
        if (
            isinstance(event, PodObserved)
            and event.pod_uid == bound.pod_uid
            and event.object.status.phase in ENDED_PHASES
        ):
            return recorded(row, event).at_ns
    return 0


def devices_there(view: SchedulerState, node: str, keys: Collection[str]) -> dict[str, list[int]]:
    """Returns type -> minors of a node: of its Device object, and of the keys of recorded devices."""
    listed = devices_of(view.objects.get(DEVICES, {}).get(node, {}))
    found = {(each.type, each.minor) for each in listed if each.minor is not None}
    for key in keys:
        of, _, rest = key.partition("/")
        type_, _, minor = rest.partition("/")
        if of == node and minor.lstrip("-").isdigit():
            found.add((type_, int(minor)))
    by_type: dict[str, list[int]] = {}
    for type_, number in sorted(found):
        by_type.setdefault(type_, []).append(number)
    return by_type
