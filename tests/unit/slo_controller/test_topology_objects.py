"""NodeResourceTopologies: made and kept as agents state them, without touching what others write there."""

import json
from typing import Any

from services.slo_controller.node_topology.topology_objects import MANAGED_BY, ZONES, merged
from services.slo_controller.overcommit import batch_resources
from shared.events.cluster import NodeDeleted, ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.nodes import NodeTopologyRemoved, NodeTopologyReported
from shared.kube.node_resource_topology import CPU_BASIC_INFO, NUMA_RESERVATION, SHARED_POOLS
from shared.kube.resource_names import NODE_TOPOLOGIES
from tests.support.slo_cluster import Cluster, running

TWO = {f"node-{zone}": {"cpu": ("50", "50"), "memory": ("60G", "60G")} for zone in (0, 1)}


def statement(
    pools: str = "[]", label: str = "", zones: dict[str, dict[str, tuple[str, str]]] | None = None
) -> NodeTopologyReported:
    return NodeTopologyReported(
        node="n", boot="b", number=1, at_ns=1, annotations={SHARED_POOLS: pools}, policy="None",
        zones=TWO if zones is None else zones, numa_reservation=label,
    )  # fmt: skip


def appended(cluster: Cluster, at_s: float) -> list[FieldsDesired | ObjectDesired]:
    found = (e for e in cluster.decide(at_s) if isinstance(e, FieldsDesired | ObjectDesired))
    return [event for event in found if event.resource == NODE_TOPOLOGIES]


def shows(cluster: Cluster, body: dict[str, Any]) -> None:
    cluster.append("cluster", ObjectObserved(resource=NODE_TOPOLOGIES, name="n", uid="t", object=body))


def made(cluster: Cluster, at_s: float = 1) -> dict[str, Any]:
    """The object that a turn makes."""
    (event,) = appended(cluster, at_s)
    assert isinstance(event, ObjectDesired)
    assert event.body is not None
    return event.body


def resource(of: str, size: str) -> dict[str, str]:
    return {"name": of, "capacity": size, "allocatable": size, "available": size}


def test_the_object_is_created_as_the_agent_reports_it_also_without_overcommitment() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.append("nodes-0", statement())
    body = made(cluster)
    meta = body["metadata"]
    assert (meta["annotations"], meta["labels"]) == ({SHARED_POOLS: "[]"}, MANAGED_BY)
    assert [(owner["kind"], owner["uid"], owner["controller"]) for owner in meta["ownerReferences"]] == [
        ("Node", "uid-n", True)
    ]
    assert body["topologyPolicies"] == ["None"]
    assert body["zones"][0] == {
        "name": "node-0",
        "type": "Node",
        "resources": [resource("cpu", "50"), resource("memory", "60G")],
    }
    cluster.state.changed["n"] = None
    assert appended(cluster, 2) == [], "once is enough"


def test_zones_of_an_existing_object_are_a_field_group_of_their_own() -> None:
    """Otherwise values that other clients write into zones would be reverted."""
    cluster = Cluster()
    cluster.node()
    cluster.append("nodes-0", statement())
    body = made(cluster)
    shows(cluster, body)
    (requested,) = appended(cluster, 2)
    assert isinstance(requested, FieldsDesired)
    assert (requested.fields, "zones" in requested.patch) == ("", False)
    foreign = json.loads(json.dumps(body))
    foreign["zones"][0]["resources"].insert(0, resource("example.com/thing", "3"))
    shows(cluster, foreign)
    assert appended(cluster, 3) == []
    smaller = {"node-0": {"cpu": ("48", "48")}, "node-1": TWO["node-1"]}
    cluster.append("nodes-0", statement(zones=smaller))
    (requested,) = appended(cluster, 4)
    assert isinstance(requested, FieldsDesired)
    assert requested.fields == ZONES
    assert requested.patch["zones"][0]["resources"] == [
        resource("cpu", "48"),
        resource("example.com/thing", "3"),
        resource("memory", "60G"),
    ]


def test_an_object_with_the_reported_values_is_not_written() -> None:
    cluster = Cluster()
    cluster.node()
    zones = merged((), {"node-0": {"cpu": ("50", "50000m")}, "node-1": {"cpu": ("5e1", "50")}})
    notes = {SHARED_POOLS: '[ {"node": 0} ]', "example.com/note": "x"}
    shows(
        cluster,
        {"metadata": {"labels": MANAGED_BY, "annotations": notes}, "topologyPolicies": ["None"], "zones": zones},
    )
    same = {zone: {"cpu": ("50", "50")} for zone in TWO}
    cluster.append("nodes-0", statement('[{"node":0}]', zones=same))
    assert appended(cluster, 1) == []
    cluster.append("nodes-0", statement('[{"node":1}]', zones=same))
    (requested,) = appended(cluster, 2)
    assert isinstance(requested, FieldsDesired)
    assert requested.patch["metadata"]["annotations"] == {SHARED_POOLS: '[{"node":1}]'}


def test_measured_and_batch_resources_of_zones_are_written_together() -> None:
    cluster = running()
    cluster.append("nodes-0", statement())
    body = made(cluster, 31)
    shows(cluster, body)
    requested = [event for event in appended(cluster, 32) if isinstance(event, FieldsDesired) and event.fields == ZONES]
    found = [{each["name"]: each["allocatable"] for each in zone["resources"]} for zone in requested[0].patch["zones"]]
    assert [zone["cpu"] for zone in found] == ["50", "50"]
    assert [zone[batch_resources.CPU] for zone in found] == ["12500", "12500"]


def test_a_label_removed_from_the_node_is_removed_from_the_topology() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.append("nodes-0", statement(label="true"))
    body = made(cluster)
    assert body["metadata"]["labels"] == MANAGED_BY | {NUMA_RESERVATION: "true"}
    shows(cluster, body)
    appended(cluster, 2)
    cluster.append("nodes-0", statement())
    (requested,) = appended(cluster, 3)
    assert isinstance(requested, FieldsDesired)
    assert requested.patch["metadata"]["labels"] == MANAGED_BY | {NUMA_RESERVATION: None}
    cluster.state.changed["n"] = None
    assert appended(cluster, 4) == []


def test_a_deleted_object_is_created_again_and_deleted_with_its_node() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.append("nodes-0", statement())
    body = made(cluster)
    shows(cluster, body)
    appended(cluster, 2)
    cluster.append("cluster", ObjectDeleted(resource=NODE_TOPOLOGIES, name="n", uid="t"))
    assert made(cluster, 3) == body
    shows(cluster, body)
    cluster.append("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    cluster.append("nodes-0", NodeTopologyRemoved(node="n"))
    (gone,) = appended(cluster, 4)
    assert isinstance(gone, ObjectDesired)
    assert gone.body is None


def test_an_object_of_another_client_stays_when_its_node_is_deleted() -> None:
    cluster = Cluster()
    cluster.node()
    shows(cluster, {"metadata": {"annotations": {CPU_BASIC_INFO: "{}"}}, "zones": []})
    cluster.append("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    assert appended(cluster, 1) == []


def test_nothing_is_written_with_the_setting_off() -> None:
    cluster = Cluster(topologies=False)
    cluster.node()
    cluster.append("nodes-0", statement())
    assert appended(cluster, 1) == []
