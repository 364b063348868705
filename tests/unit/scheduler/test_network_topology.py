"""The network's tree: layers from the object, domains from labels of nodes, and the status that shows them."""

from typing import Any

import pytest

from services.scheduler.cache.network_domains import NetworkDomains, domains_of, path_of
from services.scheduler.gangs.network_topology_status import detail_status, network_topology_drafts
from services.scheduler.service_manifest import MANIFEST
from shared.domain.network_topology import (
    NO_INDEX,
    BadNetworkTopology,
    GatherSpec,
    Layer,
    index_of,
    read_gather,
    read_layers,
)
from shared.events.cluster import ObjectDeleted
from shared.events.intents import FieldsDesired
from shared.kube.resource_names import NETWORK_TOPOLOGIES
from shared.runtime.intent_rights import refusal
from tests.support.scheduling_world import World, node
from tests.unit.scheduler.network_worlds import RACK, SPINE, layers, network_world, observe_topology


def topology(*spec: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"networkTopologySpec": list(spec)}}


def test_layers_are_ordered_by_walking_from_the_nodes_to_the_cluster() -> None:
    spec = layers(("spine", SPINE), ("rack", RACK))
    found = read_layers(topology(*reversed(spec), {"topologyLayer": "ClusterTopologyLayer"}))
    assert found == (Layer("spine", (SPINE,)), Layer("rack", (RACK,)))
    assert read_layers(topology({"topologyLayer": "NodeTopologyLayer"})) == ()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ([], "has no NodeTopologyLayer"),
        ([{"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "rack"}], "layer rack is no topologyLayer"),
        (
            [
                {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "rack"},
                {"topologyLayer": "rack", "parentTopologyLayer": "spine"},
                {"topologyLayer": "spine", "parentTopologyLayer": "rack"},
            ],
            "layer rack is its own ancestor",
        ),
        ([{"labelKey": ["a"]}], "cannot be read"),
    ],
)
def test_layers_without_a_chain_are_named(spec: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(BadNetworkTopology, match=problem):
        read_layers(topology(*spec))


def test_the_wishes_of_a_gang_are_read_from_its_annotation() -> None:
    text = (
        '{"gatherStrategy":[{"layer":"spine","strategy":"MustGather"},'
        '{"layer":"rack","strategy":"PreferGather","podCountMultiple":4},{"layer":"x","strategy":"?"}]}'
    )
    assert read_gather(text) == GatherSpec(frozenset({"spine"}), frozenset({"rack"}), (("rack", 4),))
    assert [read_gather(each) for each in ("", "{}", '{"gatherStrategy":[]}', "[", '{"gatherStrategy":1}')] == [
        None
    ] * 5


@pytest.mark.parametrize(("text", "index"), [("0", 0), ("17", 17), ("-1", NO_INDEX), ("x", NO_INDEX), ("9" * 10, -1)])
def test_an_index_is_a_whole_number_from_0_on(text: str, index: int) -> None:
    assert index_of({"gang.scheduling.koordinator.sh/network-topology-index": text}) == index
    assert index_of(None) == NO_INDEX


def test_a_node_without_its_outer_domain_is_left_out_and_one_without_a_rack_is_its_own() -> None:
    chain = (Layer("spine", (SPINE, "old/spine")), Layer("rack", (RACK,)))
    assert path_of(chain, {SPINE: "S1", RACK: "R1"}, "n") == ("S1", "R1", "n")
    assert path_of(chain, {SPINE: "", "old/spine": "S1", RACK: "R1"}, "n") == ("S1", "R1", "n")
    assert path_of(chain, {SPINE: "S1"}, "n") == ("S1", "n", "n")
    assert path_of(chain, {RACK: "R1"}, "n") is None


def tree_of(world: World) -> NetworkDomains | None:
    cache = world.indexed()
    cache.settle()
    return cache.cluster_objects.network.domains(cache.table)


def names_of(tree: NetworkDomains | None) -> tuple[tuple[str, ...], ...]:
    return () if tree is None else tree.names


def test_domains_of_one_name_are_one_domain_below_the_parent_of_the_first_node() -> None:
    tree = domains_of(["spine", "rack"], {0: ("S2", "R1", "b"), 1: ("S1", "R1", "a"), 2: ("S2", "R2", "c")})
    assert tree.names == (("",), ("S1", "S2"), ("R1", "R2"), ("a", "b", "c"))
    assert [each.tolist() for each in tree.parents] == [[], [0, 0], [0, 1], [0, 0, 1]]
    assert tree.rows.tolist() == [1, 0, 2]


def test_the_tree_follows_labels_nodes_and_the_object() -> None:
    world = network_world(dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), "4"))
    tree = tree_of(world)
    assert names_of(tree) == (("",), ("S1", "S2"), ("R1", "R2", "R3"), ("n1", "n2", "n3", "n4", "n5"))
    assert tree is not None
    assert [tree.sums(tree.sums(tree.rows * 0 + 1, 2), 1).tolist(), len(tree.nodes_in(1, 0))] == [[3, 2], 3]
    world.add_node(node("n5", cpu="8", labels={SPINE: "S2", RACK: "R3"}))
    world.read()
    assert tree_of(world) is tree, "another amount changes no domain"
    world.add_node(node("n5", labels={SPINE: "S2", RACK: "R4"}))
    world.drop_node("n3")
    world.read()
    assert names_of(tree_of(world))[2:] == (("R1", "R3", "R4"), ("n1", "n2", "n4", "n5"))
    observe_topology(world, layers(("rack", RACK)))
    assert names_of(tree_of(world)) == (("",), ("R1", "R3", "R4"), ("n1", "n2", "n4", "n5"))
    observe_topology(world, name="other", spec=[])
    assert tree_of(world) is not None, "only the object `default` counts"
    observe_topology(world, [])
    assert tree_of(world) is None
    assert "has no NodeTopologyLayer" in world.indexed().cluster_objects.network.problem


def test_the_status_lists_the_domains_and_is_written_until_the_object_has_it() -> None:
    world = network_world(dict.fromkeys(("n1", "n3", "n4", "n5"), "4"))
    cache = world.indexed()
    cache.settle()
    tree = tree_of(world)
    assert tree is not None
    desired = detail_status(tree)
    assert [(each["topologyInfo"]["topologyName"], each["nodeNum"]) for each in desired] == [
        ("", 4), ("S1", 2), ("R1", 1), ("R2", 1), ("S2", 2), ("R3", 2),
    ]  # fmt: skip
    assert desired[1] == {
        "topologyInfo": {"topologyLayer": "spine", "topologyName": "S1"},
        "parentTopologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""},
        "childTopologyLayer": "rack",
        "childTopologyNames": ["R1", "R2"],
        "nodeNum": 2,
    }
    assert "childTopologyNames" not in desired[2]
    [draft] = network_topology_drafts(cache)
    assert isinstance(draft.event, FieldsDesired)
    assert (draft.event.patch, draft.event.uid) == ({"status": {"detailStatus": desired}}, "uid-default")
    assert refusal("scheduling", MANIFEST.intents, draft.event) == ""
    assert network_topology_drafts(cache) == (), "it is on its way"
    observe_topology(world, status=draft.event.patch["status"])
    cache.settle()
    assert network_topology_drafts(cache) == ()
    observe_topology(world, status={"detailStatus": []})
    cache.settle()
    assert len(network_topology_drafts(cache)) == 1
    world.observe(ObjectDeleted(resource=NETWORK_TOPOLOGIES, name="default", uid="uid-default"))
    world.read()
    cache.settle()
    assert network_topology_drafts(cache) == ()
