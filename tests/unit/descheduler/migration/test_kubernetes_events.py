"""The Kubernetes Events of jobs and pods: which reasons on which objects, once a change, and gone with their job."""

from typing import Any

import pytest

from services.descheduler.service_manifest import MANIFEST
from shared.events import Event
from shared.events.intents import ObjectDesired
from shared.kube.resource_names import KUBERNETES_EVENTS, MIGRATION_JOBS, RESERVATIONS
from shared.runtime.intent_rights import refusal
from tests.support.migration import migration_args
from tests.support.migration_world import OWN, World


def world_with(**args: Any) -> World:
    world = World(migration_args(evictQPS=100, objectLimiters={"workload": {"duration": "0s"}}, **args))
    world.workload("web", 10)
    return world


def noted(world: World) -> list[tuple[str, str, str, str]]:
    """The Events so far: kind and name of the object, type and reason."""
    return [
        (body["involvedObject"]["kind"], body["involvedObject"]["name"], body["type"], body["reason"])
        for record in world.logs[OWN]
        if (body := body_of(record.event)) is not None
    ]


def body_of(event: Event) -> dict[str, Any] | None:
    if not isinstance(event, ObjectDesired) or event.resource != KUBERNETES_EVENTS:
        return None
    assert refusal(OWN, MANIFEST.intents, event) == "", "the gateway writes it"
    return event.body


def go_on(world: World, rounds: int = 4, **gateway: Any) -> None:
    for _ in range(rounds):
        world.decide()
        world.gateway(**gateway)
        world.pass_time(1)


def moved(world: World) -> None:
    """A job from its begin to its end."""
    world.request("j", "web-0", mode="ReservationFirst", ttl="60s")
    go_on(world)
    (place,) = (name for resource, name in world.objects if resource == RESERVATIONS)
    world.schedule(place)
    go_on(world)
    world.kubelets_end_pods()
    go_on(world)
    world.successor("default/web-0", place, ready=False)
    go_on(world)
    world.becomes_ready("default/web-0")
    go_on(world)
    assert world.job("j").status.phase == "Succeeded"


def test_each_step_of_a_job_leaves_one_event_and_the_eviction_one_of_the_pod() -> None:
    world = world_with()
    moved(world)
    assert noted(world) == [
        ("PodMigrationJob", "j", "Normal", "ReservationCreated"),
        ("PodMigrationJob", "j", "Normal", "ReservationScheduled"),
        ("PodMigrationJob", "j", "Normal", "Evicting"),
        ("Pod", "web-0", "Normal", "Descheduled"),
        ("PodMigrationJob", "j", "Normal", "EvictComplete"),
        ("PodMigrationJob", "j", "Normal", "WaitForPodBindReservation"),
        ("PodMigrationJob", "j", "Normal", "WaitForBoundPodReady"),
        ("PodMigrationJob", "j", "Normal", "PodBoundReservation"),
        ("PodMigrationJob", "j", "Normal", "BoundPodReady"),
        ("PodMigrationJob", "j", "Normal", "Complete"),
    ]


def test_the_events_of_a_job_are_deleted_once_it_is_gone() -> None:
    world = world_with()
    moved(world)
    assert len([1 for resource, _ in world.objects if resource == KUBERNETES_EVENTS]) == 10
    world.remove(MIGRATION_JOBS, "j")
    go_on(world, 1)
    assert not [name for resource, name in world.objects if resource == KUBERNETES_EVENTS]
    assert world.state.migration.events == {}


@pytest.mark.parametrize(
    ("ttl", "pod", "reason"),
    [("2s", "web-0", "Timeout"), ("60s", "gone", "MissingPod"), ("60s", "", "InvalidPodRef")],
)
def test_a_failure_is_a_warning_with_its_reason(ttl: str, pod: str, reason: str) -> None:
    world = world_with()
    world.request("j", pod, mode="ReservationFirst", ttl=ttl)
    go_on(world)
    assert noted(world)[-1] == ("PodMigrationJob", "j", "Warning", reason)


def test_a_refused_eviction_is_a_warning_with_the_answer() -> None:
    world = world_with()
    world.request("j", "web-0", mode="EvictDirectly", ttl="60s")
    go_on(world, 4, refuse="a disruption budget allows none")
    warnings = [each for each in noted(world) if each[2] == "Warning"]
    assert warnings == [("PodMigrationJob", "j", "Warning", "Evicting")]
    (body,) = (body for record in world.logs[OWN] if (body := body_of(record.event)) is not None)
    assert (body["message"], body["action"]) == ("a disruption budget allows none", "Migrating")


def test_an_eviction_without_a_successor_leaves_no_event_of_success() -> None:
    world = world_with()
    world.request("j", "web-0", mode="EvictDirectly", ttl="60s")
    go_on(world)
    world.kubelets_end_pods()
    go_on(world)
    assert world.job("j").status.phase == "Succeeded"
    assert [each[3] for each in noted(world)] == ["Evicting", "Descheduled", "EvictComplete"]
