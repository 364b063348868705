"""ReplicaSets of the simulated cluster: as many pods as desired, whatever removes them."""

from typing import Any

import pytest

from services.descheduler.migration.filter_chain import filter_for_plugins
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.events.cluster import PodBound, PodEvicted
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.pod import Pod
from tests.support.migration import migration_args
from tests.unit.simulator.simulated_world import World, node

PLACE = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default"}}


def replica_set(replicas: object = 4, **template: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": "i"}]} | template
    labels = {"app": "web"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return PLACE | {"spec": spec | {"replicas": replicas}}


def pods(world: World) -> dict[str, Pod]:
    return {key: pod for key, pod in world.state.pods().items() if not pod.metadata.deletion_timestamp}


def stored(world: World) -> dict[str, Any]:
    found = world.state.objects["replicasets.apps"]["default/web"]
    assert isinstance(found, dict)
    return found


def bound(world: World) -> None:
    for key, pod in pods(world).items():
        if not pod.spec.node_name:
            placed = PodPlaced(pod_uid=pod.metadata.uid, pod=key, node="n1", cycle=1, request={})
            assert isinstance(world.intend(placed)[0], PodBound)


def test_pods_that_are_deleted_or_evicted_are_replaced() -> None:
    world = World()
    world.create(node(), replica_set())
    made = pods(world)
    assert len(made) == 4
    uid = stored(world)["metadata"]["uid"]
    assert {pod.metadata.controller.uid for pod in made.values() if pod.metadata.controller} == {uid}
    bound(world)
    deleted, evicted, *kept = pods(world)
    world.request("delete", {"apiVersion": "v1", "kind": "Pod", "metadata": _named(deleted)})
    pod = pods(world)[evicted]
    request = EvictionRequested(pod_uid=pod.metadata.uid, pod=evicted, reason="r")
    assert isinstance(world.intend(request)[0], PodEvicted)
    after = pods(world)
    assert len(after) == 4
    assert after.keys() > set(kept)
    assert not {deleted, evicted} & after.keys()


def test_it_follows_its_replicas_and_takes_its_pods_with_it() -> None:
    world = World()
    world.create(node(), replica_set(2))
    bound(world)
    running = set(pods(world))
    world.request("patch", PLACE | {"patch": {"spec": {"replicas": 3}}})
    assert len(pods(world)) == 3
    world.request("patch", PLACE | {"patch": {"spec": {"replicas": 2}}})
    assert set(pods(world)) == running, "the one without a node goes first"
    world.request("delete", PLACE)
    assert not pods(world)
    world.advance(100)
    assert not world.state.pods()


def test_the_descheduler_moves_its_pods() -> None:
    world = World()
    world.create(node(), replica_set(schedulerName="koord-scheduler"))
    bound(world)
    world.advance(60)
    state = DeschedulerState()
    for record in world.logs["cluster"]:
        state.apply(record)
    facts = state.migration.facts
    first, *_ = pods(world).values()
    assert (facts.workload(first).replicas, facts.workload(first).unavailable) == (4, ())
    assert not filter_for_plugins(facts, migration_args()).reason(first)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (replica_set("3"), "spec.replicas: Invalid value: '3'"),
        (replica_set(-1), "spec.replicas: Invalid value: -1"),
        (replica_set(1_000_000), "from 0 to 1000"),
        (replica_set(containers=[]), "spec.containers: Required value"),
        (replica_set(priorityClassName="none"), "no PriorityClass with name none"),
        (replica_set() | {"spec": {"replicas": 1}}, "spec.selector: Required value"),
        (replica_set() | {"spec": []}, "spec.selector: Required value"),
        (replica_set(containers="c"), "cannot be handled"),
    ],
)
def test_one_that_could_make_no_pods_is_refused(body: dict[str, Any], field: str) -> None:
    world = World()
    answer = world.request("create", body)
    assert field in answer["message"]
    assert not world.state.objects.get("replicasets.apps")


def test_a_template_that_no_longer_makes_pods_is_named_on_the_object() -> None:
    world = World()
    low = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 1}
    world.create(low, replica_set(1, priorityClassName="low"))
    world.request("delete", {key: low[key] for key in ("apiVersion", "kind", "metadata")})
    [key] = pods(world)
    world.request("delete", {"apiVersion": "v1", "kind": "Pod", "metadata": _named(key)})
    assert "no PriorityClass with name low" in stored(world)["status"]["conditions"][0]["message"]
    world.create(low)
    world.request("patch", PLACE | {"patch": {"spec": {"replicas": 2}}})
    assert len(pods(world)) == 2
    assert not stored(world)["status"]


def _named(key: str) -> dict[str, str]:
    namespace, _, name = key.partition("/")
    return {"namespace": namespace, "name": name}
