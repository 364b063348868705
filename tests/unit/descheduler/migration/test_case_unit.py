"""The victims of a case for a waiting unit leave together, once a place is held for each of them, or all stay."""

import pytest

from services.descheduler.migration.pod_migration_job import DESTINATION
from shared.events.descheduling import EvictionCaseOpened, Victim, WaitingUnit
from shared.events.intents import EvictionRequested, ObjectDesired
from shared.events.migration import MigrationArbitrated
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
from tests.support.migration import migration_args
from tests.support.migration_world import OWN, World
from tests.unit.descheduler.migration.test_gang_unit import places, round_of

UNIT = "case defragment-1 moves as a unit or not at all"
TRAIN = WaitingUnit("default/train", "Gang", 600, 300, {"m0": "n0"}, 120)
JOBS = {"j0": "web-0", "j1": "api-0"}


def case_world(*missing: str, together: bool = True) -> World:
    """A case moves a pod of each of two workloads; some of its jobs are missing."""
    world = World(migration_args(objectLimiters={"workload": {"duration": "0s"}}, maxMigratingPerNamespace=1))
    for workload in ("web", "api"):
        world.workload(workload, 10)
    victims = tuple(
        Victim(f"default/{pod}", f"uid-{pod}", "n0", "it waits", destination=f"n{number + 20}", job=job)
        for number, (job, pod) in enumerate(JOBS.items())
    )
    unit = TRAIN if together else None
    opened = EvictionCaseOpened(
        case="defragment-1", cycle=1, profile="p", plugin="Defragment", victims=victims, unit=unit
    )
    world.append(OWN, opened)
    for number, (job, pod) in enumerate(JOBS.items()):
        if job not in missing:
            world.request(job, pod, mode="ReservationFirst", ttl="60s")
            body = world.objects[MIGRATION_JOBS, job]
            body["metadata"]["annotations"] = {DESTINATION: f"n{number + 20}"}
            world.put(MIGRATION_JOBS, job, body)
    return world


def begun(world: World) -> list[str]:
    """The jobs begin; returns their places, none of which is held yet."""
    assert [pod for _ in range(4) for pod in round_of(world)] == []
    return places(world)


def test_both_places_are_held_on_their_nodes_before_both_pods_leave_in_one_append() -> None:
    world = case_world()
    first, second = begun(world)  # although one job of a namespace may run at once: neither is worth anything alone
    arbitrated = [r.event for r in world.logs[OWN] if isinstance(r.event, MigrationArbitrated)]
    assert [(each.gang, each.case) for each in arbitrated] == [("", "defragment-1")] * 2
    assert arbitrated[0].together == {"j0": "uid-j0", "j1": "uid-j1"}
    world.schedule(first)
    assert [pod for _ in range(3) for pod in round_of(world)] == []
    waits = "case defragment-1 moves as a unit: default/api-0 cannot leave yet, since no place is held for it"
    assert world.job("j0").status.message == waits
    world.restart()
    world.schedule(second)
    assert sorted(round_of(world)) == ["default/api-0", "default/web-0"]


def test_pods_of_other_cases_leave_alone() -> None:
    assert len(begun(case_world(together=False))) == 1


@pytest.mark.parametrize("what", ["place expires", "job deleted", "place deleted"])
def test_where_one_of_them_cannot_move_none_does(what: str) -> None:
    world = case_world()
    first, second = begun(world)
    world.schedule(first)
    round_of(world)
    match what:
        case "place expires":
            world.reservation_ends(second, "Failed", "Expired")
        case "job deleted":
            world.remove(MIGRATION_JOBS, "j1")
        case _:
            world.remove(RESERVATIONS, second)
    assert [pod for _ in range(8) for pod in round_of(world)] == []
    status = world.job("j0").status
    assert (status.phase, status.reason) == ("Failed", "GangStays")
    assert UNIT in status.message


def test_they_wait_for_a_job_that_is_being_made_and_stay_without_one_that_is_gone() -> None:
    world = case_world("j1")
    body = {"spec": {"podRef": {"namespace": "default", "name": "api-0", "uid": "uid-api-0"}}}
    world.append(OWN, ObjectDesired(resource=MIGRATION_JOBS, name="j1", body=body))
    assert [event for event in world.decide() if isinstance(event, EvictionRequested)] == []
    assert world.job("j0").status.phase == ""
    gone = case_world("j1")
    assert begun(gone) == []
    assert gone.job("j0").status.phase == "Failed"
    assert f"{UNIT}: PodMigrationJob j1 does not wait any more" in gone.job("j0").status.message
