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


def said(cluster: Cluster, at_s: float) -> list[FieldsDesired | ObjectDesired]:
    found = (e for e in cluster.decide(at_s) if isinstance(e, FieldsDesired | ObjectDesired))
    return [event for event in found if event.resource == NODE_TOPOLOGIES]


def shows(cluster: Cluster, body: dict[str, Any]) -> None:
    cluster.say("cluster", ObjectObserved(resource=NODE_TOPOLOGIES, name="n", uid="t", object=body))


def made(cluster: Cluster, at_s: float = 1) -> dict[str, Any]:
    """The object that a turn makes."""
    (event,) = said(cluster, at_s)
    assert isinstance(event, ObjectDesired)
    assert event.body is not None
    return event.body


def resource(of: str, size: str) -> dict[str, str]:
    return {"name": of, "capacity": size, "allocatable": size, "available": size}


def test_the_object_is_made_as_the_agent_states_it_without_over_commitment_too() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.say("nodes-0", statement())
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
    assert said(cluster, 2) == [], "once is enough"


def test_once_it_is_there_its_zones_are_no_part_of_what_made_it() -> None:
    """Else what others write into zones would be taken back as a change of ours."""
    cluster = Cluster()
    cluster.node()
    cluster.say("nodes-0", statement())
    body = made(cluster)
    shows(cluster, body)
    (asked,) = said(cluster, 2)
    assert isinstance(asked, FieldsDesired)
    assert (asked.fields, "zones" in asked.patch) == ("", False)
    foreign = json.loads(json.dumps(body))
    foreign["zones"][0]["resources"].insert(0, resource("example.com/thing", "3"))
    shows(cluster, foreign)
    assert said(cluster, 3) == []
    smaller = {"node-0": {"cpu": ("48", "48")}, "node-1": TWO["node-1"]}
    cluster.say("nodes-0", statement(zones=smaller))
    (asked,) = said(cluster, 4)
    assert isinstance(asked, FieldsDesired)
    assert asked.fields == ZONES
    assert asked.patch["zones"][0]["resources"] == [
        resource("cpu", "48"),
        resource("example.com/thing", "3"),
        resource("memory", "60G"),
    ]


def test_an_object_that_says_so_already_is_left_alone_whoever_wrote_it() -> None:
    cluster = Cluster()
    cluster.node()
    zones = merged((), {"node-0": {"cpu": ("50", "50000m")}, "node-1": {"cpu": ("5e1", "50")}})
    notes = {SHARED_POOLS: '[ {"node": 0} ]', "example.com/note": "x"}
    shows(
        cluster,
        {"metadata": {"labels": MANAGED_BY, "annotations": notes}, "topologyPolicies": ["None"], "zones": zones},
    )
    same = {zone: {"cpu": ("50", "50")} for zone in TWO}
    cluster.say("nodes-0", statement('[{"node":0}]', zones=same))
    assert said(cluster, 1) == []
    cluster.say("nodes-0", statement('[{"node":1}]', zones=same))
    (asked,) = said(cluster, 2)
    assert isinstance(asked, FieldsDesired)
    assert asked.patch["metadata"]["annotations"] == {SHARED_POOLS: '[{"node":1}]'}


def test_measured_and_batch_resources_of_zones_are_written_together() -> None:
    cluster = running()
    cluster.say("nodes-0", statement())
    body = made(cluster, 31)
    shows(cluster, body)
    asked = [event for event in said(cluster, 32) if isinstance(event, FieldsDesired) and event.fields == ZONES]
    found = [{each["name"]: each["allocatable"] for each in zone["resources"]} for zone in asked[0].patch["zones"]]
    assert [zone["cpu"] for zone in found] == ["50", "50"]
    assert [zone[batch_resources.CPU] for zone in found] == ["12500", "12500"]


def test_a_label_that_the_node_has_no_longer_goes_from_the_topology() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.say("nodes-0", statement(label="true"))
    body = made(cluster)
    assert body["metadata"]["labels"] == MANAGED_BY | {NUMA_RESERVATION: "true"}
    shows(cluster, body)
    said(cluster, 2)
    cluster.say("nodes-0", statement())
    (asked,) = said(cluster, 3)
    assert isinstance(asked, FieldsDesired)
    assert asked.patch["metadata"]["labels"] == MANAGED_BY | {NUMA_RESERVATION: None}
    cluster.state.changed["n"] = None
    assert said(cluster, 4) == []


def test_what_somebody_deletes_is_made_again_and_what_is_of_a_node_that_is_gone_goes_with_it() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.say("nodes-0", statement())
    body = made(cluster)
    shows(cluster, body)
    said(cluster, 2)
    cluster.say("cluster", ObjectDeleted(resource=NODE_TOPOLOGIES, name="n", uid="t"))
    assert made(cluster, 3) == body
    shows(cluster, body)
    cluster.say("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    cluster.say("nodes-0", NodeTopologyRemoved(node="n"))
    (gone,) = said(cluster, 4)
    assert isinstance(gone, ObjectDesired)
    assert gone.body is None


def test_an_object_of_another_hand_stays_when_its_node_goes() -> None:
    cluster = Cluster()
    cluster.node()
    shows(cluster, {"metadata": {"annotations": {CPU_BASIC_INFO: "{}"}}, "zones": []})
    cluster.say("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    assert said(cluster, 1) == []


def test_nothing_is_written_where_the_setting_says_so() -> None:
    cluster = Cluster(topologies=False)
    cluster.node()
    cluster.say("nodes-0", statement())
    assert said(cluster, 1) == []
