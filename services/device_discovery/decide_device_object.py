"""Decides the Device object of a node: created, updated and deleted as its recorded devices are. Pure.

The object is one desired state with all fields of this service, which the gateway applies server-side and writes again
when another client changes them. Its labels, amounts and health reach the node through the SLO controller.

Source: spec/api.md 1.5; spec/node-agent.md 6.2.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.device_discovery.decide_inventory import event_key
from services.device_discovery.state import DeviceEntry, DiscoveryState
from shared.agents.device_inventory import Partition
from shared.events import Draft
from shared.events.devices import NODE, DeviceDisappeared, NodeDevicesRemoved
from shared.events.intents import ObjectDesired
from shared.kube.device import PARTITIONS
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import bytes_text
from shared.kube.resource_names import DEVICES, KUBERNETES_EVENTS


def decide_node(state: DiscoveryState, node: str, now_ns: int, *, is_own: bool = True) -> list[Draft]:
    """Returns the desired Device of a node where it differs from the newest one, or the end of a node that was
    deleted or has moved to another shard.

    Nothing is desired of a node that has moved: what is recorded of it is of an earlier time, and what was desired
    stays in force until the other shard desires something else. A node that came back is recorded anew with its next
    inventory.

    Args:
        is_own: the node belongs to this shard, by the number of shards.
    """
    if not is_own or state.has_moved(node):
        is_recorded = node in state.reported or node in state.devices
        return [Draft(NodeDevicesRemoved(node=node, moved=True))] if is_recorded else []
    if node not in state.nodes:
        return _removed(state, node, now_ns)
    if node not in state.reported:
        return []
    body = device_body(state, node)
    if state.desired(DEVICES, node) == body:
        return []
    return [Draft(ObjectDesired(resource=DEVICES, name=node, body=body))]


def device_body(state: DiscoveryState, node: str) -> dict[str, Any]:
    """Returns the Device of an existing node: without status, which others write."""
    report = state.reported[node]
    owner = {
        "apiVersion": "v1", "kind": "Node", "name": node, "uid": state.nodes[node], "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    metadata: dict[str, Any] = {"ownerReferences": [owner]}
    if report.labels:
        metadata["labels"] = dict(report.labels)
    if report.partitions:
        metadata["annotations"] = {PARTITIONS: _partition_table(report.partitions)}
    entries = sorted(state.there(node).values(), key=lambda entry: (entry.found.type, entry.found.minor))
    return {"metadata": metadata, "spec": {"devices": [_device(entry) for entry in entries]}}


def _device(entry: DeviceEntry) -> dict[str, Any]:
    found = entry.found
    topology = {"socketID": found.socket, "nodeID": found.numa, "pcieID": found.pcie_root}
    device: dict[str, Any] = {
        "type": found.type,
        "minor": found.minor,
        "health": found.health,
        "resources": {name: _amount(name, size) for name, size in sorted(found.resources.items())},
        "topology": topology | ({"busID": found.bus_id} if found.bus_id else {}),
    }
    if found.id:
        device["id"] = found.id
    if found.module_id is not None:
        device["moduleID"] = found.module_id
    if found.labels:
        device["labels"] = dict(found.labels)
    if found.virtual_functions:
        device["vfGroups"] = [
            ({"labels": dict(group.labels)} if group.labels else {})
            | {"vfs": [{"minor": each.minor, "busID": each.bus_id} for each in group.functions]}
            for group in found.virtual_functions
        ]
    if found.conditions:
        device["conditions"] = [
            {
                "type": each.type,
                "status": each.status,
                "lastTransitionTime": instant_text(entry.since_ns.get(each.type, entry.at_ns) // SECOND * SECOND),
                "reason": each.reason,
                "message": each.message,
            }
            for each in found.conditions
        ]
    return device


def _amount(resource: str, size: int) -> str:
    return bytes_text(size) if resource.endswith("memory") else str(size)


def _partition_table(partitions: Mapping[str, tuple[Partition, ...]]) -> str:
    table = {
        size: [
            {"minors": list(each.minors), "gpuLinkType": each.link, "allocationScore": each.score}
            | ({"ringBusBandwidth": each.ring_bandwidth} if each.ring_bandwidth else {})
            for each in group
        ]
        for size, group in sorted(partitions.items(), key=lambda item: int(item[0]))
    }
    return msgspec.json.encode(table).decode()


def _removed(state: DiscoveryState, node: str, now_ns: int) -> list[Draft]:
    """Ends the devices of a node that left the cluster, deletes its Device and the Kubernetes Event about it."""
    drafts = [
        Draft(
            DeviceDisappeared(
                device=f"{node}/{key}",
                node=node,
                boot=entry.boot,
                number=entry.number,
                at_ns=now_ns,
                why=NODE,
                found=entry.found,
                pods=state.users(node, key),
            )
        )
        for key, entry in sorted(state.there(node).items())
    ]
    if node in state.reported or node in state.devices:
        drafts.append(Draft(NodeDevicesRemoved(node=node)))
    if state.desired(DEVICES, node) is not None:
        drafts.append(Draft(ObjectDesired(resource=DEVICES, name=node, body=None)))
    if state.desired(KUBERNETES_EVENTS, event_key(node)) is not None:
        drafts.append(Draft(ObjectDesired(resource=KUBERNETES_EVENTS, name=event_key(node), body=None)))
    return drafts
