"""Pre-allocation: a Reservation takes over running pods, and is placed where they leave it enough.

Source: spec/scheduler-workloads.md 1.11, with its worked examples.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.packed_controllers import unpacked
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.reservation import PRE_ALLOCATABLE, PRE_ALLOCATABLE_PRIORITY, PRE_ALLOCATION_REQUIRED
from shared.events import Draft, RecordedEvent
from shared.events.cluster import ObjectDeleted
from shared.events.intents import FieldsDesired
from shared.events.scheduling import PlacementReserved, PodPlaced, ReservationUnschedulable
from shared.kube.meta import OwnerReference
from shared.kube.pod import Pod
from shared.kube.resource_names import RESERVATIONS
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.reservations import live, observe, reservation, status_of
from tests.support.scheduling_world import World, node, placements, pod, use
from tests.unit.scheduler.interleavings import assert_one_state

Json = dict[str, Any]
REQUIRED = {"labels": {PRE_ALLOCATION_REQUIRED: "true"}}


def running(name: str, cpu: str, on: str = "n", priority: int | None = None, **more: Any) -> Pod:
    labels = {"app": "web", PRE_ALLOCATABLE: "true"} | more.pop("labels", {})
    annotations = {} if priority is None else {PRE_ALLOCATABLE_PRIORITY: str(priority)}
    annotations |= more.pop("annotations", {})
    return pod(name, cpu=cpu, memory=None, on=on, phase="Running", labels=labels, annotations=annotations, **more)


def world_with(*pods: Pod, cpu: str = "16", **config: Any) -> World:
    world = World()
    if config:
        args = f"pluginConfig:\n  - name: Reservation\n    args: {json.dumps({'preAllocationConfig': config})}\n"
        use(world, DEFAULT_PROFILE.replace("pluginConfig:\n", args, 1))
    world.add_node(node("n", cpu=cpu))
    for each in pods:
        world.add_pod(each)
    world.read()
    return world


def abc(*, orders: tuple[int | None, ...] = (None, None, None)) -> list[Pod]:
    """The pods of the worked examples: 13 of 16 cores are requested."""
    sizes = (("a", "3"), ("b", "4"), ("c", "6"))
    return [running(name, cpu, priority=order) for (name, cpu), order in zip(sizes, orders, strict=True)]


def reserve(
    world: World, cpu: str = "8", *, cluster: bool = False, several: bool = False, **more: Any
) -> list[RecordedEvent]:
    policy = {"mode": "Cluster" if cluster else "Default", "enableMultiple": several}
    spec: Json = {
        "preAllocation": True,
        "preAllocationPolicy": policy,
        "allocatePolicy": "Restricted",
        "allocateOnce": False,
    }
    observe(world, reservation("web", cpu, **(spec | more)))
    world.read()
    return world.cycles()


def taken(records: list[RecordedEvent]) -> list[str] | None:
    """The pods that the Reservation takes over; None where it has no node."""
    if not any(isinstance(r.event, PlacementReserved) for r in records):
        return None
    found = []
    for record in records:
        event = record.event
        if isinstance(event, FieldsDesired) and event.resource == "pods":
            assert event.patch == {"metadata": {"annotations": {RESERVATION_ALLOCATED: '{"name":"web","uid":"r-web"}'}}}
            assert event.name == f"d/{event.uid}"
            found.append(event.uid)
    return found


def message(records: list[RecordedEvent]) -> str:
    return next(r.event.message for r in records if isinstance(r.event, ReservationUnschedulable))


def cpu_on(world: World) -> int:
    cache = world.indexed()
    cache.settle()
    return int(cache.table.requested[cache.table.rows["n"], 0])


def test_example_1_one_pod_that_leaves_enough_is_taken_over() -> None:
    world = world_with(*abc())
    assert taken(reserve(world)) == ["c"]
    assert cpu_on(world) == 3000 + 4000 + 8000, "C counts within the Reservation"
    live(world)
    status = status_of(world, "web")
    assert status["phase"] == "Available"
    assert [each["name"] for each in status["currentOwners"]] == ["c"]
    assert status["allocated"] == {"cpu": "6"}


def test_example_2_several_pods_are_taken_over_until_the_node_has_enough() -> None:
    world = world_with(*abc(orders=(3, 2, 1)), enableClusterMode=True)
    assert taken(reserve(world, cluster=True, several=True)) == ["a", "b"]
    assert cpu_on(world) == 6000 + 8000


@pytest.mark.parametrize(
    ("orders", "expected"),
    [((2, 1, 3), ["c"]), ((3, 1, 2), ["a", "b"])],
    ids=["C first is enough", "C beside A does not fit into it"],
)
def test_example_3_the_order_decides_which_pods_are_taken_over(orders: tuple[int, ...], expected: list[str]) -> None:
    world = world_with(*abc(orders=orders), enableClusterMode=True)
    assert taken(reserve(world, cluster=True, several=True)) == expected


def test_example_4_none_is_taken_over_where_the_node_has_enough_if_that_is_preferred() -> None:
    pods = [running("a", "3"), running("c", "4")]
    assert taken(reserve(world_with(*pods, preferNoPreAllocatedPods=True))) == []
    assert taken(reserve(world_with(*pods))) == ["c"], "otherwise a pod is taken over"
    world = world_with(*pods, preferNoPreAllocatedPods=True)
    assert taken(reserve(world, metadata=REQUIRED)) == ["c"], "and where that is required"


def test_without_a_pod_to_take_over_a_reservation_waits_or_is_placed_as_any() -> None:
    full = world_with(running("other", "13", labels={"app": "x", PRE_ALLOCATABLE: "false"}))
    assert taken(reserve(full)) is None
    assert taken(reserve(world_with())) == []
    world = world_with()
    records = reserve(world, metadata=REQUIRED)
    assert message(records) == (
        "0/1 nodes are available: 1 node(s) no pod match reservation with pre allocation required."
    )
    world.add_pod(running("c", "6"))
    world.wait(2)
    world.read()
    assert taken(world.cycles()) == ["c"]


def test_pods_that_are_too_large_or_leave_too_little_are_not_taken_over() -> None:
    world = world_with(running("a", "9"), running("b", "1"))
    assert "Reservation(s) Insufficient cpu" in message(reserve(world, metadata=REQUIRED))


def test_the_policy_must_be_restricted_and_cluster_mode_enabled() -> None:
    world = world_with(*abc())
    observe(world, reservation("web", "8", preAllocation=True))
    world.read()
    world.cycles()
    live(world)
    assert (
        "spec.preAllocation requires spec.allocatePolicy Restricted"
        in status_of(world, "web")["conditions"][0]["message"]
    )
    records = reserve(world_with(*abc()), cluster=True)
    assert "reservation requires cluster mode pre-allocation which is disabled" in message(records)


def test_owners_are_followed_by_their_whole_text() -> None:
    by_name = [{"object": {"name": "b"}, "labelSelector": {"matchLabels": {"app": "web"}}}]
    world = world_with(running("b", "6"), running("c", "6"))
    assert taken(reserve(world, owners=by_name)) == ["b"]
    only_object = [{"object": {"name": "b"}}]
    world = world_with(running("b", "6"), running("c", "6"))
    assert taken(reserve(world, owners=only_object)) is None, "an owner without a labelSelector takes over none"


def controlled(name: str, by: str, *, on: str = "n") -> Pod:
    """Returns a running pod of 6 cores of a ReplicaSet."""
    body = running(name, "6", on)
    owners = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=by, uid=f"uid-{by}", controller=True),)
    return replace(body, metadata=replace(body.metadata, owner_references=owners))


def of_controller(**named: Any) -> list[Json]:
    return [{"controller": named, "labelSelector": {"matchLabels": {"app": "web"}}}]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"name": "old"}, ["b"]),
        ({"kind": "ReplicaSet", "name": "new", "apiVersion": "apps/v1", "controller": True}, ["c"]),
        ({"uid": "uid-old"}, ["b"]),
        ({"name": "old", "uid": "uid-new"}, None),
        ({"name": "old", "kind": "StatefulSet"}, None),
        ({"name": "old", "namespace": "other"}, None),
    ],
)
def test_an_owner_by_controller_takes_over_the_running_pods_of_that_controller(
    named: Json, expected: list[str] | None
) -> None:
    world = world_with(running("a", "2"), controlled("b", "old"), controlled("c", "new"))
    assert taken(reserve(world, owners=of_controller(**named))) == expected


def test_controllers_of_running_pods_outlast_a_snapshot_and_follow_their_pods() -> None:
    world = world_with(running("a", "8"), controlled("b", "old"))
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert unpacked(restored.pods["b"].controllers) == controlled("b", "old").metadata.owner_references
    world.add_pod(controlled("b", "new"))
    world.read()
    assert taken(reserve(world, owners=of_controller(name="old"))) is None
    assert_one_state(world)


def test_a_pod_is_known_by_its_controllers_from_when_it_has_a_node() -> None:
    world = world_with(running("a", "8"), controlled("b", "old", on=""))
    assert world.view.pods["b"].controllers == b""
    world.add_pod(controlled("b", "old"))
    world.read()
    assert taken(reserve(world, owners=of_controller(name="old"))) == ["b"]


def test_a_pod_with_another_reservation_affinity_is_not_taken_over() -> None:
    wish = {"scheduling.koordinator.sh/reservation-affinity": '{"name":"other"}'}
    assert taken(reserve(world_with(running("c", "9", annotations=wish)))) is None


def test_two_reservations_take_over_different_pods() -> None:
    world = world_with(running("a", "6"), running("b", "6"))
    spec: Json = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    for name in ("one", "two"):
        observe(world, reservation(name, "8", owners=owners, **spec))
    world.read()
    records = world.cycles()
    by_pod = {
        r.event.uid: json.loads(r.event.patch["metadata"]["annotations"][RESERVATION_ALLOCATED])["name"]
        for r in records
        if isinstance(r.event, FieldsDesired) and r.event.resource == "pods"
    }
    assert by_pod.keys() == {"a", "b"}
    assert set(by_pod.values()) == {"one", "two"}
    assert cpu_on(world) == 16_000


def test_what_is_left_is_for_owners_and_all_of_it_when_the_pod_has_ended() -> None:
    world = world_with(*abc())
    reserve(world)
    live(world)
    world.add_pod(pod("w", cpu="2", memory=None, labels={"app": "web"}))
    world.read()
    used = [r.event for r in world.cycles() if isinstance(r.event, PodPlaced)]
    assert [each.annotations[RESERVATION_ALLOCATED] for each in used] == ['{"name":"web","uid":"r-web"}']
    world.add_pod(pod("x", cpu="3", memory=None, labels={"app": "web"}))
    world.read()
    assert placements(world.cycles()) == {}
    world.drop_pod("c")
    world.wait(2)
    world.read()
    assert placements(world.cycles()) == {"x": "n"}


def test_the_end_of_the_reservation_leaves_its_pods_and_frees_the_rest() -> None:
    world = world_with(*abc())
    reserve(world, ttl="1h")
    live(world)
    world.wait(3601)
    live(world)
    assert status_of(world, "web")["phase"] == "Failed"
    assert cpu_on(world) == 13_000


def test_a_restored_state_and_one_in_another_order_are_equal() -> None:
    world = world_with(*abc())
    reserve(world)
    live(world)
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()
    assert_one_state(world)


def test_the_state_is_the_same_whether_the_end_of_a_reservation_or_its_placement_is_folded_first() -> None:
    world = world_with(*abc())
    reserve(world)
    world.observe(ObjectDeleted(resource=RESERVATIONS, name="web", uid="r-web"))
    world.read()
    assignment = assert_one_state(world).pods["c"].assignment()
    assert assignment is not None
    assert assignment.allocation == {RESERVATION_ALLOCATED: '{"name":"web","uid":"r-web"}'}


def test_a_pod_that_is_placed_anew_is_no_longer_that_of_the_reservation_that_took_it_over() -> None:
    world = world_with(*abc())
    (uid,) = taken(reserve(world, "8")) or []
    assert world.view.pods[uid].decisions is not None
    world.append_drafts([Draft(PodPlaced(pod_uid=uid, pod=f"d/{uid}", node="n", cycle=9, request={"cpu": 1000}))])
    decisions = world.view.pods[uid].decisions
    assert decisions is not None
    assert decisions.pre_allocated == ""
