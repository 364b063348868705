"""The status of the ClusterNetworkTopology on a real API server: the tree of the node labels, written by the gateway's
own account, and not again once it is there.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from services.scheduler.gangs.network_topology_status import network_topology_drafts
from shared.domain.network_topology import OBJECT
from shared.events.cluster import DesiredStateApplied
from shared.events.intents import FieldsDesired
from shared.kube.resource_names import NETWORK_TOPOLOGIES
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.effect_harness import EffectHarness
from tests.support.scheduling_world import World
from tests.unit.scheduler.network_worlds import SPINES_AND_RACKS

PATH = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
LABELS = {
    "topology-1": {"net/spine": "S1", "net/rack": "R1"},
    "topology-2": {"net/spine": "S1", "net/rack": "R2"},
    "topology-3": {"net/spine": "S1", "net/rack": "R2"},
}


@pytest.fixture
def topology(cluster: Cluster, kube_nodes: MakeNodes) -> Iterator[None]:
    kube_nodes(*LABELS)
    for name, labels in LABELS.items():
        cluster.api.call("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    body: dict[str, Any] = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": OBJECT},
        "spec": {"networkTopologySpec": SPINES_AND_RACKS},
    }
    cluster.api.call("POST", PATH, body)
    yield
    cluster.api.call("DELETE", f"{PATH}/{OBJECT}")


async def decided(world: World, harness: EffectHarness) -> list[FieldsDesired]:
    """Observes the objects as the gateway does, and decides as the scheduler does."""
    await harness.observe("nodes", *LABELS)
    await harness.observe(NETWORK_TOPOLOGIES, OBJECT)
    for record in harness.log.contexts["cluster"][world.view.positions.get("cluster", 0) :]:
        world.fold(record)
    cache = world.indexed()
    cache.settle()
    drafts = network_topology_drafts(cache)
    return [draft.event for draft in drafts if isinstance(draft.event, FieldsDesired)]


def nodes_by_domain(cluster: Cluster) -> dict[str, int]:
    status = cluster.api.call("GET", f"{PATH}/{OBJECT}")["status"]
    return {each["topologyInfo"].get("topologyName", ""): each["nodeNum"] for each in status["detailStatus"]}


@pytest.mark.usefixtures("topology")
async def test_the_tree_of_the_labels_is_written_and_follows_them(harness: EffectHarness, cluster: Cluster) -> None:
    world = World()
    (desired,) = await decided(world, harness)
    (outcome,) = await harness.carry_out(desired)
    assert isinstance(outcome, DesiredStateApplied)
    assert nodes_by_domain(cluster) == {"": 3, "S1": 3, "R1": 1, "R2": 2}
    assert await decided(world, harness) == [], "the object has the status that was written"

    cluster.api.call("PATCH", "/api/v1/nodes/topology-2", {"metadata": {"labels": {"net/rack": "R1"}}})
    (desired,) = await decided(world, harness)
    await harness.carry_out(desired)
    assert nodes_by_domain(cluster) == {"": 3, "S1": 3, "R1": 2, "R2": 1}
