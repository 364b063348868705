"""Invariants about cards: what was reported as unavailable is recorded, and no pod is placed on what its scheduler knew to
be unavailable.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from cli.dev.fault_simulation.memory_log import Row
from cli.dev.fault_simulation.node_cards import NodeCards, healthy_minors
from cli.dev.fault_simulation.shares import GPU, shares_in
from shared.agents.device_inventory import DeviceFound
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.devices import DEVICE_EVENTS, DeviceDisappeared, NodeDevicesReported
from shared.events.scheduling import PodPlaced
from shared.kube.resource_names import DEVICES

_OBSERVED, _DELETED = ObjectObserved.type_name(), ObjectDeleted.type_name()
_PLACED, _REPORTED, _GONE = (kind.type_name() for kind in (PodPlaced, NodeDevicesReported, DeviceDisappeared))
_ABOUT_DEVICES = frozenset(kind.type_name() for kind in DEVICE_EVENTS)


class _Placed(msgspec.Struct):
    pod: str
    node: str
    annotations: dict[str, str] = {}


class _Object(msgspec.Struct):
    resource: str
    name: str
    object: dict[str, Any] = {}


class _About(msgspec.Struct):
    node: str
    device: str = ""
    found: DeviceFound | None = None


class _Basis(msgspec.Struct):
    seen: dict[str, int] = {}


class CardInvariant:
    """History of the cards of a world, as far as the invariants need it."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._healthy: dict[str, list[tuple[int, frozenset[int]]]] = {}  # node -> seq of `cluster`, GPUs pods may get
        self._recorded: dict[str, str] = {}  # NODE/gpu/MINOR -> id of a card that is recorded as healthy, else empty
        self._known: set[str] = set()  # nodes of which an inventory is recorded

    def appended(self, context: str, rows: list[Row]) -> None:
        """Checks the rows of a commit."""
        if context == "cluster":
            for row in rows:
                if row.type in (_OBSERVED, _DELETED):
                    self._observe(row)
        elif context == "devices-0":
            for row in rows:
                self._record(row)
        elif context == "scheduling" and any(row.type == _PLACED for row in rows):
            self._check_placements(rows)

    def answered(self, cards: NodeCards) -> None:
        """Checks that of an inventory with a receipt all is recorded that takes a card away, and of an accepted one all."""
        if cards.node not in self._known or cards.answered is None:
            return  # an inventory waits until its node is observed
        reported = {f"{cards.node}/gpu/{found.minor}": found for found in cards.answered.devices if found.health}
        for device, id_ in self._recorded.items():
            if device.startswith(f"{cards.node}/") and id_ and device not in reported:
                self._report(f"{device} is reported as unavailable, the report has a receipt, and nothing is recorded")
        for device, found in reported.items():
            if cards.accepted is not None and self._recorded.get(device) != found.id:
                self._report(f"{device} is reported as {found.id}, the report is accepted, and nothing is recorded")

    def _observe(self, row: Row) -> None:
        found = msgspec.json.decode(row.data, type=_Object)
        if found.resource == DEVICES:
            minors = healthy_minors(found.object) if row.type == _OBSERVED else frozenset()
            self._healthy.setdefault(found.name, []).append((row.seq, minors))

    def _record(self, row: Row) -> None:
        if row.type == _REPORTED:
            self._known.add(msgspec.json.decode(row.data, type=_About).node)
        elif row.type in _ABOUT_DEVICES:
            event = msgspec.json.decode(row.data, type=_About)
            is_there = row.type != _GONE and event.found is not None and event.found.health
            self._recorded[event.device] = event.found.id if is_there and event.found is not None else ""

    def _check_placements(self, rows: list[Row]) -> None:
        """Checks that each GPU of a placement was healthy in the Device that the cycle had read."""
        seen = 0
        for row in rows:
            seen = msgspec.json.decode(row.data, type=_Basis).seen.get("cluster", seen)
            if row.type != _PLACED:
                continue
            placed = msgspec.json.decode(row.data, type=_Placed)
            history = [minors for seq, minors in self._healthy.get(placed.node, ()) if seq <= seen]
            for part in shares_in(placed.annotations):
                if part.kind == GPU and (not history or part.number not in history[-1]):
                    self._report(f"{placed.pod} is placed on {part} of {placed.node}, which was unhealthy or missing")
