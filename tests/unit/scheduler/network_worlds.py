"""Nodes in spines and racks, as the worked examples of the network topology have them."""

from collections.abc import Mapping
from typing import Any

from shared.events.cluster import ObjectObserved
from shared.kube.resource_names import NETWORK_TOPOLOGIES
from tests.support.scheduling_world import World, node

SPINE, RACK = "net/spine", "net/rack"
TREE: Mapping[str, tuple[str, str]] = {
    "n1": ("S1", "R1"),
    "n2": ("S1", "R1"),
    "n3": ("S1", "R2"),
    "n4": ("S2", "R3"),
    "n5": ("S2", "R3"),
}
"""Node -> its spine and rack."""


def layers(*chain: tuple[str, str]) -> list[dict[str, Any]]:
    """Returns a spec: (layer, label) from the outermost layer inwards; the nodes are below the last one."""
    names = [name for name, _ in chain]
    found: list[dict[str, Any]] = [
        {"topologyLayer": name, "labelKey": [label], "parentTopologyLayer": above}
        for (name, label), above in zip(chain, ["ClusterTopologyLayer", *names], strict=False)
    ]
    return [*found, {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": names[-1] if names else ""}]


SPINES_AND_RACKS = layers(("spine", SPINE), ("rack", RACK))


def observe_topology(world: World, spec: Any = SPINES_AND_RACKS, *, name: str = "default", **more: Any) -> None:
    body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"networkTopologySpec": spec}, **more}
    world.observe(ObjectObserved(resource=NETWORK_TOPOLOGIES, name=name, uid=f"uid-{name}", object=body))
    world.read()


def network_world(cpus: Mapping[str, str], **settings: Any) -> World:
    """Returns a world with the nodes of TREE that have an amount of cpu."""
    world = World(**settings)
    for name, cpu in cpus.items():
        spine, rack = TREE[name]
        world.add_node(node(name, cpu=cpu, labels={SPINE: spine, RACK: rack}))
    observe_topology(world)
    return world
