"""The Device object: made, kept and deleted as the devices of its node are recorded."""

import json
from typing import Any

from services.device_discovery.service_manifest import MANIFEST
from services.slo_controller.overcommit.device_resources import device_amounts
from shared.agents.device_inventory import DeviceFound, Partition, VirtualFunction, VirtualFunctionGroup
from shared.events import Cause, Event
from shared.events.base import without_basis
from shared.events.devices import DeviceAppeared, DeviceDisappeared, NodeDevicesRemoved, NodeDevicesReported
from shared.events.intents import ObjectDesired
from shared.kube.device import PARTITIONS
from shared.kube.resource_names import DEVICES
from shared.runtime.intent_rights import refusal
from tests.support.discovery_log import DiscoveryLog, gpu, sick

LABELS = {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "H100"}


def body(events: list[Event]) -> dict[str, Any]:
    """The Device that the only event desires."""
    (event,) = events
    assert isinstance(event, ObjectDesired)
    assert (event.resource, event.name) == (DEVICES, "n")
    assert refusal("devices-0", MANIFEST.intents, event) == ""
    assert event.body is not None
    return event.body


def started(*devices: DeviceFound, **content: Any) -> DiscoveryLog:
    log = DiscoveryLog()
    log.node()
    log.report(*devices, **content)
    return log


def test_the_object_has_all_that_the_node_reported() -> None:
    card = DeviceFound(
        "rdma", 1, True, "0000:41:00.0", {"koordinator.sh/rdma": 100}, 3, 0, 1, "pci0000:40", "0000:40:01.0",
        "0000:41:00.0", {"link": "ib"}, (VirtualFunctionGroup((VirtualFunction("0000:41:00.2"),), {"type": "fast"}),),
    )  # fmt: skip
    log = started(card, sick(0), labels=LABELS, partitions={"1": (Partition((0,), "NVLink", "400Gi"),)})
    found = body(log.decide())
    assert found["metadata"]["labels"] == LABELS
    assert json.loads(found["metadata"]["annotations"][PARTITIONS]) == {
        "1": [{"minors": [0], "gpuLinkType": "NVLink", "allocationScore": 1, "ringBusBandwidth": "400Gi"}]
    }
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", "uid-n", True)
    assert found["spec"]["devices"] == [
        {
            "type": "gpu",
            "minor": 0,
            "id": "GPU-0",
            "health": False,
            "resources": {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory": "80Gi",
                "koordinator.sh/gpu-memory-ratio": "100",
            },
            "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:3a", "busID": "0000:3b:00.0"},
            "conditions": [
                {
                    "type": "Healthy",
                    "status": "False",
                    "reason": "Xid79",
                    "message": "",
                    "lastTransitionTime": "2026-05-01T03:00:00Z",
                }
            ],
        },
        {
            "type": "rdma",
            "minor": 1,
            "id": "0000:41:00.0",
            "moduleID": 3,
            "health": True,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": {"socketID": 0, "nodeID": 1, "pcieID": "pci0000:40", "busID": "0000:41:00.0"},
            "labels": {"link": "ib"},
            "vfGroups": [{"labels": {"type": "fast"}, "vfs": [{"minor": -1, "busID": "0000:41:00.2"}]}],
        },
    ]


def test_the_object_follows_the_inventory_and_is_desired_once() -> None:
    log = started(gpu(0), gpu(1))
    body(log.decide())
    assert log.decide() == []
    log.report(gpu(0), at_s=1)
    assert [device["minor"] for device in body(log.decide())["spec"]["devices"]] == [0]
    log.report(at_s=2)
    assert body(log.decide())["spec"]["devices"] == [], (
        "an empty Device keeps pods away; without one, the kubelet decides"
    )


def test_the_nodes_amounts_follow_from_the_object() -> None:
    log = started(gpu(0), gpu(1), sick(2), labels=LABELS)
    amounts, labels = device_amounts(body(log.decide()))
    assert (amounts["koordinator.sh/gpu"], amounts["koordinator.sh/gpu-memory"]) == ("200", "160Gi")
    assert labels == LABELS


def test_a_node_without_devices_gets_no_object() -> None:
    assert started().decide() == []


def test_an_object_that_another_client_deleted_is_made_again() -> None:
    log = started(gpu(0))
    made = body(log.decide())
    log.no_device_object()
    assert body(log.decide()) == made


def test_the_object_waits_for_its_node_and_names_the_newest_one() -> None:
    log = started(gpu(0))
    log.node(uid="uid-2")
    assert body(log.decide())["metadata"]["ownerReferences"][0]["uid"] == "uid-2"


def test_the_devices_of_a_deleted_node_end_with_it() -> None:
    log = started(gpu(0), gpu(1, numa=5_000))
    log.decide()
    log.pod("train", '{"gpu":[{"minor":0}]}')
    log.no_node()
    gone, removed, device, notice = log.decide(at_s=60)
    assert isinstance(gone, DeviceDisappeared)
    assert (gone.why, [user.pod for user in gone.pods]) == ("node", ["d/train"])
    assert removed == NodeDevicesRemoved(node="n")
    assert device == ObjectDesired(resource=DEVICES, name="n", body=None)
    assert isinstance(notice, ObjectDesired)
    assert notice.body is None
    assert refusal("devices-0", MANIFEST.intents, device) + refusal("devices-0", MANIFEST.intents, notice) == ""
    assert (log.decide(), log.state.devices, log.state.reported) == ([], {}, {})


def test_a_shard_forgets_a_node_that_belongs_to_another_one_and_deletes_nothing() -> None:
    log = started(gpu(0))
    desired = body(log.decide())
    assert list(map(without_basis, log.decide(is_own=False))) == [NodeDevicesRemoved(node="n", moved=True)]
    assert (log.decide(is_own=False), log.state.devices, log.state.reported, log.state.desired_fields) == (
        [],
        {},
        {},
        {},
    )
    log.no_node()
    assert log.decide(is_own=False) == []
    log.node()
    log.report(gpu(0))
    assert body(log.decide()) == desired, "the node came back"


def test_a_shard_that_was_away_while_another_one_had_its_node_begins_with_the_next_inventory() -> None:
    """2 shards, 1, and 2 again: the shard in between recorded that the card failed, and this one has an old record."""
    log = started(gpu(0))
    log.decide()
    ours = log.newest_desired()
    log.superseded(ours)
    assert log.state.has_moved("n")
    log.node(uid="uid-2")
    assert list(map(without_basis, log.decide())) == [NodeDevicesRemoved(node="n", moved=True)], (
        "not the Device as it was"
    )
    assert log.decide() == []
    assert [type(event) for event in log.report(gpu(0))] == [DeviceAppeared, NodeDevicesReported]
    assert body(log.decide())["spec"]["devices"][0]["health"]
    assert not log.state.has_moved("n")


def test_an_older_desired_device_that_was_replaced_or_an_object_that_was_deleted_moves_no_node() -> None:
    log = started(gpu(0))
    log.decide()
    older = log.newest_desired()
    log.report(gpu(0), gpu(1))
    log.decide()
    log.superseded(older)
    log.superseded(Cause("devices-1", 1_000))
    assert not log.state.has_moved("n")
    log.no_device_object()
    log.superseded(log.newest_desired())
    assert not log.state.has_moved("n")
    assert body(log.decide())["spec"]["devices"]
