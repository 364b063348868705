"""Decides on an inventory: what it changes about the devices of its node. Pure: State, inventory and `now` in, events out.

An inventory that differs in nothing from what is recorded gives no event.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import fields, replace

from services.device_discovery.inventory_check import CheckedInventory, check_inventory, shortened
from services.device_discovery.service_manifest import COMPONENT, INVENTORY_EVENTS
from services.device_discovery.state import DeviceEntry, DiscoveryState
from shared.agents.device_inventory import BadInventory, DeviceCondition, DeviceFound, Devices, Inventory
from shared.domain.desired_kubernetes_event import event_intent
from shared.events import Draft, Event
from shared.events.devices import (
    MISSING,
    REPLACED,
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    NodeDevicesReported,
)
from shared.events.intents import ObjectDesired
from shared.kube.instants import SECOND, instant_text

HEALTHY = "Healthy"
UNREAD, IGNORED = "InventoryUnread", "InventoryIgnored"
MAX_AGE_S = 3_600
"""Older inventories are rejected."""
MAX_KNOWN = 2_048
"""Devices of one node that may ever have been recorded; further ones are ignored."""

_FIELDS = tuple(sorted(field.name for field in fields(DeviceFound)))


def check_time(state: DiscoveryState, inventory: Inventory, *, max_clock_skew_s: float, now_ns: int) -> None:
    """Rejects an inventory that lies ahead of our clock, or is older than what is recorded.

    Raises:
        BadInventory: names the time and what to do.
    """
    late_ns = now_ns - inventory.at_ns
    text = instant_text(inventory.at_ns)
    if -late_ns > max_clock_skew_s * SECOND:
        reason = f"{text} lies {-late_ns // SECOND} s ahead of our clock, and {max_clock_skew_s:g} s are allowed"
        raise BadInventory(inventory.node, "at_ns", f"{reason}; set the node's clock")
    if late_ns > MAX_AGE_S * SECOND:
        raise BadInventory(inventory.node, "at_ns", f"{text} lies more than {MAX_AGE_S} s back")
    for boot, number, at_ns in _recorded(state, inventory.node):
        is_older = inventory.seq < number if boot == inventory.boot else inventory.at_ns < at_ns
        if is_older:
            reason = f"{text} is before the newest recorded change of its devices, {instant_text(at_ns)}"
            raise BadInventory(inventory.node, "at_ns", f"{reason}; set the node's clock if this goes on")


def inventory_events(state: DiscoveryState, inventory: Inventory, content: Devices, now_ns: int) -> list[Draft]:
    """Returns the events of an inventory of an existing node, those about devices first, in the order of their keys.

    Devices that were recorded and that this inventory lacks have disappeared, unless the node could not read their
    type, or reported something about them that cannot be true: those stay, unhealthy.
    """
    node = inventory.node
    checked = _within_limit(state, node, check_inventory(content))
    before = state.there(node)
    after = checked.devices | _kept_unhealthy(before, checked)
    change = _Change(state, inventory)
    events: list[Event] = []
    for key in sorted(before.keys() | after.keys()):
        events += change.of_device(key, before.get(key), after.get(key))
    drafts = [Draft(event) for event in events]
    report = NodeDevicesReported(
        **change.basis,
        labels=checked.labels,
        partitions=checked.partitions,
        unread=checked.unread,
        ignored=shortened(checked.ignored),
    )
    recorded = state.reported.get(node)
    is_empty = not (after or checked.unread or checked.ignored)
    if (recorded is None and is_empty) or (recorded is not None and _content(recorded) == _content(report)):
        return drafts
    return [*drafts, Draft(report), *_kubernetes_event(state, recorded, report, now_ns)]


def losses(drafts: Sequence[Draft]) -> list[Draft]:
    """Returns the events of an inventory that make healthy devices unavailable: by their health, because they are
    missing, or because an unhealthy one has their place. These are recorded at once, beyond the node's limit.
    """
    unhealthy = {
        draft.event.device
        for draft in drafts
        if isinstance(draft.event, DeviceAppeared) and not draft.event.found.health
    }

    def is_loss(event: Event) -> bool:
        match event:
            case DeviceHealthChanged(found=found):
                return not found.health
            case DeviceDisappeared(why=why, device=device, found=found):
                return why == MISSING or (found.health and device in unhealthy)
        return False

    lost = {draft.event.key for draft in drafts if is_loss(draft.event)}
    return [
        draft
        for draft in drafts
        if is_loss(draft.event) or (isinstance(draft.event, DeviceAppeared) and draft.event.device in lost)
    ]


def event_key(node: str) -> str:
    """Returns `namespace/name` of the Kubernetes Event about a node's inventories, the same for all of them."""
    return INVENTORY_EVENTS.removesuffix("*") + sha256(node.encode()).hexdigest()[:16]


class _Change(NamedTuple):
    """Compares devices of one inventory with recorded ones."""

    state: DiscoveryState
    inventory: Inventory

    @property
    def basis(self) -> dict[str, Any]:
        """The fields that each event of the inventory has."""
        one = self.inventory
        return {"node": one.node, "boot": one.boot, "number": one.seq, "at_ns": one.at_ns}

    def of_device(self, key: str, before: DeviceEntry | None, after: DeviceFound | None) -> Iterator[Event]:
        """Yields what changed about one device."""
        at_ns, node = self.inventory.at_ns, self.inventory.node
        common = self.basis | {"device": f"{node}/{key}"}
        if before is not None and (after is None or _is_replaced(before.found, after)):
            why = MISSING if after is None else REPLACED
            yield DeviceDisappeared(**common, why=why, found=before.found, pods=self.state.users(node, key))
            before = None
        if after is None:
            return
        common |= {"found": after, "since_ns": _transitions(before, after, at_ns)}
        if before is None:
            yield DeviceAppeared(**common, health_since_ns=at_ns)
        elif before.found.health != after.health:
            condition = _explanation(after)
            yield DeviceHealthChanged(
                **common,
                health_since_ns=at_ns,
                reason=condition.reason if condition else "",
                message=condition.message if condition else "",
                pods=self.state.users(node, key),
            )
        elif before.found != after:
            changed = tuple(name for name in _FIELDS if getattr(before.found, name) != getattr(after, name))
            yield DeviceChanged(**common, changed=changed, health_since_ns=before.health_since_ns)


def _recorded(state: DiscoveryState, node: str) -> Iterator[tuple[str, int, int]]:
    """Yields boot, number and time of the inventories whose changes are recorded of a node."""
    for entry in state.devices.get(node, {}).values():
        yield entry.boot, entry.number, entry.at_ns
    if (report := state.reported.get(node)) is not None:
        yield report.boot, report.number, report.at_ns


def _within_limit(state: DiscoveryState, node: str, checked: CheckedInventory) -> CheckedInventory:
    """Ignores new devices of a node of which too many were recorded."""
    known = state.devices.get(node, {})
    new = [key for key in checked.devices if key not in known]
    over = new[max(0, MAX_KNOWN - len(known)) :]
    if not over:
        return checked
    reason = f"the node has had {len(known)} devices; at most {MAX_KNOWN} are recorded"
    devices = {key: found for key, found in checked.devices.items() if key not in over}
    return checked._replace(devices=devices, ignored=checked.ignored | dict.fromkeys(over, reason))


def _kept_unhealthy(before: Mapping[str, DeviceEntry], checked: CheckedInventory) -> dict[str, DeviceFound]:
    """Returns the recorded devices of which the inventory lacks a believable state, as unhealthy."""
    kept = {}
    for key, entry in before.items():
        if key in checked.devices:
            continue
        if (reason := checked.ignored.get(key)) is not None:
            kept[key] = _unhealthy(entry.found, IGNORED, reason)
        elif (reason := checked.unread.get(entry.found.type)) is not None:
            kept[key] = _unhealthy(entry.found, UNREAD, reason)
    return kept


def _unhealthy(found: DeviceFound, reason: str, message: str) -> DeviceFound:
    others = tuple(condition for condition in found.conditions if condition.type != HEALTHY)
    return replace(found, health=False, conditions=(*others, DeviceCondition(HEALTHY, "False", reason, message[:512])))


def _is_replaced(before: DeviceFound, after: DeviceFound) -> bool:
    return bool(before.id and after.id and before.id != after.id)


def _transitions(before: DeviceEntry | None, after: DeviceFound, at_ns: int) -> dict[str, int]:
    """Returns when the status of each condition last changed."""
    statuses = {each.type: each.status for each in before.found.conditions} if before else {}
    return {
        each.type: before.since_ns.get(each.type, at_ns) if before and statuses.get(each.type) == each.status else at_ns
        for each in after.conditions
    }


def _explanation(found: DeviceFound) -> DeviceCondition | None:
    """Returns the condition that explains a device's health."""
    status = "True" if found.health else "False"
    return next((each for each in found.conditions if each.type == HEALTHY and each.status == status), None)


def _content(report: NodeDevicesReported) -> tuple[object, ...]:
    return report.labels, report.partitions, report.unread, report.ignored


def _kubernetes_event(
    state: DiscoveryState, before: NodeDevicesReported | None, after: NodeDevicesReported, now_ns: int
) -> list[Draft]:
    """Writes a Kubernetes Event on the node when the parts that are ignored or could not be read change."""
    faults = after.ignored | {f"type {kind}": reason for kind, reason in after.unread.items()}
    earlier = before.ignored.keys() | {f"type {kind}" for kind in before.unread} if before else set()
    if faults.keys() == earlier:
        return []
    if faults:
        parts = "; ".join(f"{part}: {reason}" for part, reason in faults.items())
        reason, type_ = "DeviceInventoryIgnored", "Warning"
        message = f"parts of the node's device inventory do not count, and no pod gets these devices: {parts}"
    else:
        reason, type_ = "DeviceInventoryBelieved", "Normal"
        message = "the node's device inventory counts again as a whole"
    node = after.node
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": state.nodes[node]}
    intent: ObjectDesired = event_intent(
        event_key(node), about, reason=reason, message=message, component=COMPONENT, now_ns=now_ns, type_=type_
    )
    return [Draft(intent)]
