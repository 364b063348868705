"""A small cluster as a log: what is observed, the inventories of its nodes, and the events of device discovery."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from services.device_discovery.decide_device_object import decide_node
from services.device_discovery.decide_inventory import check_time, inventory_events
from services.device_discovery.state import DiscoveryState
from shared.agents import device_inventory
from shared.agents.device_inventory import DeviceCondition, DeviceFound, Devices, Inventory
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    DesiredStateSuperseded,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    PodBound,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import ObjectDesired
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND, instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.resource_names import DEVICES
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.support.device_machines import GPU, gpu_pod

BEGAN = instant_ns("2026-05-01T03:00:00Z")
GI = 1 << 30


def gpu(minor: int, **changed: Any) -> DeviceFound:
    """Returns a healthy GPU of 80 GiB."""
    resources = {
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 80 * GI,
        "koordinator.sh/gpu-memory-ratio": 100,
    }
    fields: dict[str, Any] = {
        "type": "gpu", "minor": minor, "health": True, "id": f"GPU-{minor}", "resources": resources, "numa": 0,
        "pcie_root": "pci0000:3a", "bus_id": f"0000:3b:00.{minor}",
    }  # fmt: skip
    return DeviceFound(**(fields | changed))


def sick(minor: int, reason: str = "Xid79") -> DeviceFound:
    """Returns a GPU that is unhealthy."""
    return gpu(minor, health=False, conditions=(DeviceCondition("Healthy", "False", reason),))


def message(
    *devices: DeviceFound, node: str = "n", boot: str = "b", seq: int = 1, at_ns: int = BEGAN, **content: Any
) -> bytes:
    """Returns an inventory as its agent sends it."""
    return device_inventory.encode(node=node, boot=boot, seq=seq, at_ns=at_ns, devices=Devices(devices, **content))


class DiscoveryLog:
    """A log for each context; instants are seconds after BEGAN.

    Attributes:
        at_s: when events are recorded.
    """

    def __init__(self) -> None:
        self.state = DiscoveryState()
        self.records: list[RecordedEvent] = []
        self.numbers = 0
        self.at_s = 0.0

    def append(self, context: str, *events: Event, cause: Cause | None = None) -> list[Event]:
        """Appends events, which have one cause, and folds them."""
        for event in events:
            seq = self.state.positions.get(context, 0) + 1
            record = RecordedEvent(
                context=context, seq=seq, event=event, at_ns=BEGAN + int(self.at_s * SECOND), cause=cause
            )
            self.records.append(record)
            self.state.apply(record)
        return list(events)

    def node(self, name: str = "n", uid: str = "") -> None:
        """Observes a node."""
        node = Node(metadata=Metadata(name=name, uid=uid or f"uid-{name}"))
        self.append("cluster", NodeObserved(node=name, object=node))

    def no_node(self, name: str = "n") -> None:
        """Observes the deletion of a node."""
        self.append("cluster", NodeDeleted(node=name, node_uid=f"uid-{name}"))

    def no_device_object(self, name: str = "n") -> None:
        """Observes that another client has deleted the Device of a node."""
        self.append("cluster", ObjectDeleted(resource=DEVICES, name=name, uid="d"))

    def pod(self, name: str, allocation: str, node: str = "n") -> None:
        """Observes a pod with devices, and its binding."""
        self.append("cluster", PodObserved(pod=f"d/{name}", pod_uid=f"uid-{name}", object=gpu_pod(name, {GPU: "50"})))
        self.bound(name, allocation, node)

    def bound(self, name: str, allocation: str, node: str = "n") -> None:
        """Observes that a pod was bound."""
        bound = PodBound(pod=f"d/{name}", pod_uid=f"uid-{name}", node=node, allocations={DEVICE_ALLOCATED: allocation})
        placed = PodPlaced(pod=bound.pod, pod_uid=bound.pod_uid, node=node, cycle=1, request={})
        self.append("scheduling", placed)
        self.append("cluster", bound, cause=Cause("scheduling", self.state.positions["scheduling"]))

    def no_pod(self, name: str) -> None:
        """Observes the deletion of a pod."""
        self.append("cluster", PodDeleted(pod=f"d/{name}", pod_uid=f"uid-{name}"))

    def report(
        self, *devices: DeviceFound, at_s: float = 0, node: str = "n", boot: str = "b", seq: int = 0, **content: Any
    ) -> list[Event]:
        """Takes an inventory; returns the events about it.

        Raises:
            BadInventory: it is rejected.
        """
        self.numbers += 1
        at_ns = BEGAN + int(at_s * SECOND)
        data = message(*devices, node=node, boot=boot, seq=seq or self.numbers, at_ns=at_ns, **content)
        inventory: Inventory = device_inventory.decode(data, node)
        check_time(self.state, inventory, max_clock_skew_s=30, now_ns=at_ns)
        found = inventory_events(self.state, inventory, device_inventory.devices_of(inventory), at_ns)
        return self._own(draft.event for draft in found)

    def decide(self, node: str = "n", at_s: float = 0, *, is_own: bool = True) -> list[Event]:
        """Decides the Device of a node."""
        found = decide_node(self.state, node, BEGAN + int(at_s * SECOND), is_own=is_own)
        return self._own(draft.event for draft in found)

    def newest_desired(self) -> Cause:
        """Returns the newest event that desires a Device."""
        of = [one for one in self.records if isinstance(one.event, ObjectDesired) and one.event.resource == DEVICES]
        return Cause(of[-1].context, of[-1].seq)

    def superseded(self, cause: Cause, node: str = "n") -> None:
        """Observes that a later event desired the Device of a node."""
        self.append("cluster", DesiredStateSuperseded(resource=DEVICES, name=node), cause=cause)

    def _own(self, events: Iterable[Event]) -> list[Event]:
        found = list(events)
        if found:
            found[0] = replace(found[0], seen=dict(self.state.positions))
        return self.append("devices-0", *found)
