"""The members of a gang that must move do so as a unit: all places are held before the first of them is evicted."""

from typing import Any

import pytest

from services.descheduler.migration.pod_migration_job import DESTINATION
from shared.events.cluster import NodeObserved
from shared.events.intents import EvictionRequested
from shared.events.migration import DrainEnded, DrainRequested, MigrationArbitrated
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeSpec
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
from tests.support.migration import migration_args, moved_pod, owner
from tests.support.migration_world import CLUSTER, OWN, World

UNIT = "gang default/web moves as a unit or not at all"


def gang_world(*, minimum: int = 10, **args: Any) -> World:
    """Ten pods of a gang that cannot spare any of them; the limits let one pod of a workload move at once."""
    limits = {
        "maxMigratingPerWorkload": 1,
        "maxUnavailablePerWorkload": 1,
        "objectLimiters": {"workload": {"duration": "0s"}},
    }
    world = World(migration_args(**{"evictQPS": 1, **limits, **args}))
    world.workload("web", 10)
    world.make_gang("web", minimum)
    return world


def round_of(world: World) -> list[str]:
    """The descheduler and the gateway do what is due; returns the pods whose eviction was requested."""
    evicted = [event.pod for event in world.decide() if isinstance(event, EvictionRequested)]
    world.gateway()
    world.pass_time(0.5)
    return evicted


def places(world: World) -> list[str]:
    """The Reservations that are not placed yet."""
    return [
        name for (resource, name), body in world.objects.items() if resource == RESERVATIONS and not body.get("status")
    ]


def begun(world: World, *numbers: int) -> list[str]:
    """Requests these members; returns their places, none of which is held yet."""
    for number in numbers:
        world.request(f"j{number}", f"web-{number}", mode="ReservationFirst", ttl="60s")
    assert [pod for _ in range(4) for pod in round_of(world)] == []
    return places(world)


def test_all_places_are_held_before_the_first_member_leaves_and_then_all_leave_in_one_append() -> None:
    world = gang_world()
    first, second, third = begun(world, 0, 1, 2)
    assert [world.reservation(name).spec.template is not None for name in (first, second, third)] == [True] * 3
    for name in (first, second):
        world.schedule(name)
        assert [pod for _ in range(3) for pod in round_of(world)] == []
    waiting = world.job("j0").status
    assert (waiting.status, waiting.reason) == ("Eviction", "WaitForGang")
    assert (
        waiting.message
        == "gang default/web moves as a unit: default/web-2 cannot leave yet, since no place is held for it"
    )
    world.restart()
    world.schedule(third)
    assert sorted(round_of(world)) == ["default/web-0", "default/web-1", "default/web-2"]


def test_their_places_are_on_the_nodes_that_the_scheduler_found_for_them_together() -> None:
    world = gang_world()
    begun(world, 0, 1)
    arbitrated = [r.event for r in world.logs[OWN] if isinstance(r.event, MigrationArbitrated)]
    assert [(each.job, each.gang, each.destination) for each in arbitrated] == [
        ("j0", "default/web", "n9"), ("j1", "default/web", "n9")
    ]  # fmt: skip
    assert arbitrated[0].together == arbitrated[1].together == {"j0": "uid-j0", "j1": "uid-j1"}
    (term,) = world.objects[RESERVATIONS, places(world)[0]]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchFields"][1] == {"key": "metadata.name", "operator": "In", "values": ["n9"]}


def test_a_member_without_a_destination_keeps_all_of_them_and_each_job_has_the_reason() -> None:
    world = gang_world()
    world.refused = {"uid-web-1": "no other node admits the pod"}
    assert begun(world, 0, 1) == []
    for name in ("j0", "j1"):
        status = world.job(name).status
        assert (status.phase, status.message.endswith(f"{UNIT}: no place for default/web-1: no other node admits the pod")) == ("Failed", True)  # fmt: skip


def test_no_member_begins_without_an_answer_of_the_scheduler() -> None:
    world = gang_world()
    world.fault = "the scheduler did not answer in time"
    assert begun(world, 0, 1) == []
    assert world.job("j0").status.phase == ""
    world.fault = ""
    assert begun_later(world) == 2


def begun_later(world: World) -> int:
    """Goes on; returns the number of places that are wanted."""
    for _ in range(4):
        round_of(world)
    return len(places(world))


@pytest.mark.parametrize("what", ["place expires", "job aborted", "job deleted", "place deleted", "pod gone"])
def test_where_one_of_them_cannot_move_none_does(what: str) -> None:
    world = gang_world()
    first, second = begun(world, 0, 1)
    world.schedule(first)
    round_of(world)
    if what == "place expires":
        world.reservation_ends(second, "Failed", "Expired")
    elif what == "place deleted":
        world.remove(RESERVATIONS, second)
    elif what == "job deleted":
        world.remove(MIGRATION_JOBS, "j1")
    elif what == "pod gone":
        world.remove_pod("default/web-1")
    else:
        body = world.objects[MIGRATION_JOBS, "j1"]
        world.put(MIGRATION_JOBS, "j1", body | {"status": body["status"] | {"phase": "Aborted"}})
    assert [pod for _ in range(4) for pod in round_of(world)] == []
    status = world.job("j0").status
    assert (status.phase, status.reason) == ("Failed", "GangStays")
    assert status.message.startswith(f"{UNIT}: ")
    assert not [name for resource, name in world.objects if resource == RESERVATIONS], "no place is held any more"


def test_a_protected_member_keeps_all_of_them() -> None:
    world = gang_world()
    world.put_pod(moved_pod("web-1", node="n1", labels=world.labels))
    assert begun(world, 0, 1) == []
    for name in ("j0", "j1"):
        assert "default/web-1 stays: it has no owner" in world.job(name).status.message


def test_a_second_unit_waits_until_the_first_has_moved() -> None:
    world = gang_world()
    (first,) = begun(world, 0)
    assert begun(world, 1) == [first]
    world.schedule(first)
    assert round_of(world) == ["default/web-0"]
    world.kubelets_end_pods()
    world.successor("default/web-0", first)
    for _ in range(6):
        round_of(world)
    assert world.job("j0").status.phase == "Succeeded"
    assert len(places(world)) == 1


def test_a_gang_with_members_to_spare_moves_them_one_by_one() -> None:
    world = gang_world(minimum=9)
    assert len(begun(world, 0, 1)) == 1
    assert not any(r.event.gang for r in world.logs[OWN] if isinstance(r.event, MigrationArbitrated))


def drained(world: World) -> list[DrainEnded]:
    """The node n0 is drained: three members are there, and nothing else moves them."""
    controller = owner("StatefulSet", "web")
    for number in (1, 2):
        world.put_pod(moved_pod(f"web-{number}", controller=controller, node="n0", labels=world.labels))
    node = Node(metadata=Metadata(name="n0", uid="n0"), spec=NodeSpec(unschedulable=True))
    world.append(CLUSTER, NodeObserved(node="n0", object=node))
    world.append(OWN, DrainRequested(node="n0", by="ann"))
    ended = []
    for _ in range(20):
        ended += [event for event in world.decide() if isinstance(event, DrainEnded)]
        world.gateway()
        world.pass_time(1)
    return ended


def test_a_drain_moves_the_members_of_its_node_together() -> None:
    world = gang_world(maxMigratingPerNode=1)
    assert drained(world) == []
    held = places(world)
    assert len(held) == 3
    for name in held[:2]:
        world.schedule(name)
    assert [pod for _ in range(3) for pod in round_of(world)] == []
    world.schedule(held[2])
    assert sorted(round_of(world)) == ["default/web-0", "default/web-1", "default/web-2"]


def test_a_drain_leaves_a_gang_of_which_one_member_finds_no_place_and_names_it() -> None:
    world = gang_world()
    world.refused = {"uid-web-2": "no other node admits the pod"}
    (ended,) = drained(world)
    assert set(ended.remaining) == {"default/web-0", "default/web-1", "default/web-2"}
    assert all("no place for default/web-2" in reason for reason in ended.remaining.values())


def test_a_drain_leaves_a_gang_of_which_one_member_is_protected() -> None:
    world = gang_world(minimum=11)
    world.put_pod(moved_pod("bare", node="n0", labels=world.labels))
    (ended,) = drained(world)
    assert ended.remaining["default/web-0"].startswith(f"{UNIT}: default/bare stays: it has no owner")
    assert not [name for resource, name in world.objects if resource == MIGRATION_JOBS]


def test_jobs_of_one_case_keep_the_destinations_of_the_case() -> None:
    world = gang_world()
    for number in (0, 1):
        world.request(f"j{number}", f"web-{number}", mode="ReservationFirst", ttl="60s")
        body = world.objects[MIGRATION_JOBS, f"j{number}"]
        body["metadata"]["annotations"] = {DESTINATION: f"n{number + 5}"}
        world.put(MIGRATION_JOBS, f"j{number}", body)
    for _ in range(4):
        round_of(world)
    nodes = [
        body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ][0]["matchFields"][1]["values"]
        for (resource, _), body in world.objects.items()
        if resource == RESERVATIONS
    ]
    assert sorted(nodes) == [["n5"], ["n6"]]
