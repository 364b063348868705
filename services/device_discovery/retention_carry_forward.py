"""The events that outlast their partition in `devices-*`: the newest of each device of an existing node, what is
recorded of the node as a whole, and newest desired states.

The disappearance of a device is kept as long as its node is: `koord why device` can tell when it was.
"""

from collections.abc import Hashable

from services.device_discovery.state import DeviceEvent, DiscoveryState, entry_of
from shared.agents.device_inventory import device_key
from shared.events import RecordedEvent
from shared.events.base import without_basis
from shared.events.devices import (
    DEVICE_EVENTS,
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    NodeDevicesRemoved,
    NodeDevicesReported,
)
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns the device of an event about one, its node, or the object that is desired."""
    match record.event:
        case (
            DeviceAppeared(device=device)
            | DeviceHealthChanged(device=device)
            | DeviceChanged(device=device)
            | DeviceDisappeared(device=device)
        ):
            return DeviceAppeared, device
        case NodeDevicesReported(node=node) | NodeDevicesRemoved(node=node):
            return NodeDevicesReported, node
        case ObjectDesired(resource=resource, name=name):
            return resource, name, ""
    return type(record.event)


def holds(state: DiscoveryState, _: Kept) -> Holds:
    """Returns the test of an event by the State: what the State has of a device, a node, an object."""

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case DeviceAppeared() | DeviceHealthChanged() | DeviceChanged() | DeviceDisappeared():
                return _is_entry(state, record.event)
            case NodeDevicesReported(node=node) as event:
                return state.reported.get(node) == without_basis(event)
            case ObjectDesired() as event:
                return state.is_newest(event)
        return True

    return still_holds


def _is_entry(state: DiscoveryState, event: DeviceEvent) -> bool:
    return state.devices.get(event.node, {}).get(device_key(event.found)) == entry_of(event)


CARRY_FORWARD = CarryForward(
    kinds=(*DEVICE_EVENTS, NodeDevicesReported, ObjectDesired, WriterStarted),
    ends=(NodeDevicesRemoved,),
    subject=subject,
    holds=holds,
    with_positions=True,
)
