"""Events of the `devices-*` contexts: which devices the agent of each node found, and what changed about them when.

They rest on inventories of node agents (shared/agents/device_inventory.py): each names the agent's run (`boot`), the
inventory's `number` in it, and the instant `at_ns` at which the devices were read, by the node's clock. An inventory
that changes nothing leaves no event.

The key of an event about one device is `NODE/TYPE/MINOR`, such as `worker-1/gpu/0`. Each holds the device completely,
so that the newest one says all about it. The Device object of a node follows as an intent (ObjectDesired).
"""

from typing import ClassVar

import msgspec

from shared.agents.device_inventory import DeviceFound, Partition
from shared.events.base import Event

MISSING, REPLACED, NODE = "missing", "replaced", "node"
"""Why a device has disappeared."""


class DeviceUser(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod to which the scheduler has given a device, or a part of it.

    Attributes:
        pod: `namespace/name`.
    """

    pod: str
    pod_uid: str


class DeviceEvent(Event, frozen=True):
    """Base of the events about one device.

    Attributes:
        device: `NODE/TYPE/MINOR`.
        boot, number, at_ns: of the inventory that showed it.
    """

    KEY: ClassVar[str] = "device"

    device: str
    node: str
    boot: str
    number: int
    at_ns: int


class DeviceAppeared(DeviceEvent, frozen=True, tag="koord.devices.DeviceAppeared.v1"):
    """A device was found that was not there before: the first time, after it had disappeared, or in place of another.

    Attributes:
        found: the device.
        health_since_ns: when its health last changed; here `at_ns`.
        since_ns: condition -> when its status last changed.
    """

    found: DeviceFound
    health_since_ns: int
    since_ns: dict[str, int] = msgspec.field(default_factory=dict)


class DeviceHealthChanged(DeviceEvent, frozen=True, tag="koord.devices.DeviceHealthChanged.v1"):
    """A device became healthy or unhealthy. An unhealthy one is given to no pod; what pods have of it stays theirs.

    Attributes:
        found: the device, as it is now; `found.health` is the new health.
        reason, message: of the condition that explains it; `InventoryUnread`: the node could not read devices of this
            type; `InventoryIgnored`: it reported something about this device that cannot be true.
        pods: the pods that had the device then.
        health_since_ns, since_ns: as in DeviceAppeared.
    """

    found: DeviceFound
    health_since_ns: int
    reason: str = ""
    message: str = ""
    pods: tuple[DeviceUser, ...] = ()
    since_ns: dict[str, int] = msgspec.field(default_factory=dict)


class DeviceChanged(DeviceEvent, frozen=True, tag="koord.devices.DeviceChanged.v1"):
    """Something else than its health changed about a device: amounts, place, labels, virtual functions, conditions.

    Attributes:
        changed: names of the fields of `found` that differ from before, sorted.
        found, health_since_ns, since_ns: as in DeviceAppeared.
    """

    found: DeviceFound
    changed: tuple[str, ...]
    health_since_ns: int
    since_ns: dict[str, int] = msgspec.field(default_factory=dict)


class DeviceDisappeared(DeviceEvent, frozen=True, tag="koord.devices.DeviceDisappeared.v1"):
    """A device is no longer there.

    Attributes:
        why: `missing`: the inventory lacks it; `replaced`: another device has its minor now, which DeviceAppeared
            names; `node`: its node left the cluster, and `boot`, `number` are those of its newest inventory.
        found: the device as it was.
        pods: the pods that had the device then.
    """

    why: str
    found: DeviceFound
    pods: tuple[DeviceUser, ...] = ()


class NodeDevicesReported(Event, frozen=True, tag="koord.devices.NodeDevicesReported.v1"):
    """The part of an inventory about its node as a whole, recorded with the first inventory that has devices, and whenever
    it changes. A node of which it is recorded has a Device object.

    Attributes:
        labels: of the Device, such as `node.koordinator.sh/gpu-model`.
        partitions: number of GPUs -> partitions of this size.
        unread: type of device -> the reason why the node could not read its devices; those are unhealthy meanwhile.
        ignored: part of the inventory, such as `gpu/3` or a label -> the reason why it is ignored: it cannot be true.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    partitions: dict[str, tuple[Partition, ...]] = msgspec.field(default_factory=dict)
    unread: dict[str, str] = msgspec.field(default_factory=dict)
    ignored: dict[str, str] = msgspec.field(default_factory=dict)


class NodeDevicesRemoved(Event, frozen=True, tag="koord.devices.NodeDevicesRemoved.v1"):
    """A node is gone from the cluster, and its inventories no longer hold. Its Device goes with it.

    Attributes:
        moved: it is not gone: after a change of the number of shards another one takes its inventories. Its Device
            stays as it was desired here until that shard desires it.
    """

    KEY: ClassVar[str] = "node"

    node: str
    moved: bool = False


DEVICE_EVENTS: tuple[type[DeviceEvent], ...] = (DeviceAppeared, DeviceHealthChanged, DeviceChanged, DeviceDisappeared)
"""Types about one device, by the key `NODE/TYPE/MINOR`."""
