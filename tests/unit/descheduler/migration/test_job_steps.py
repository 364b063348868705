"""The steps of a PodMigrationJob: spec/descheduler.md 3.10, worked example X19."""

from typing import Any

import pytest

from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.migration import MigrationEnded, MigrationEvictionDecided
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
from tests.support.migration import migration_args, moved_pod
from tests.support.migration_world import World


def world_with_job(*, until: str = "", **spec: Any) -> World:
    """Ten pods of web, and a job for the first; `until` names a step before which the world stops."""
    args = spec.pop("args", {})
    world = World(migration_args(**args))
    world.workload("web", 10)
    world.request("j", "web-0", **({"ttl": "5m0s"} | spec))
    for step in ("passed", "begun", "created", "seen", "placed", "evicted", "gone", "bound"):
        if step == until:
            break
        if step == "placed":
            world.schedule("uid-j")
        elif step == "gone":
            world.kubelets_end_pods()
        elif step == "bound":
            world.successor("default/web-0", "uid-j")
        world.decide()
        world.gateway()
    return world


def of_type(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_pod_moves_to_a_place_that_is_held_before_it_is_evicted() -> None:
    world = world_with_job(until="placed")
    assert world.job("j").status.status == "ReservationCreated"
    found = world.reservation("uid-j")
    spec = world.objects[RESERVATIONS, "uid-j"]["spec"]
    assert spec["owners"] == [
        {"controller": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-web",
                        "controller": True, "namespace": "default"}}
    ]  # fmt: skip
    assert (found.allocates_once, found.spec.ttl) == (True, "5m0s")
    terms = spec["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]}
    ]
    assert not of_type(world.decide(), EvictionRequested)
    world.schedule("uid-j")
    (request,) = of_type(world.decide(), EvictionRequested)
    assert request.pod_uid == "uid-web-0"
    assert request.reason == "PodMigrationJob j: made by a client, which names no reason"
    world.gateway()
    world.decide()
    world.gateway()
    assert world.job("j").status.message == 'Pod "default/web-0" evicted from node "n0" by the reason "NotSet"'
    world.kubelets_end_pods()
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == "WaitForPodBindReservation"
    world.successor("default/web-0", "uid-j", ready=False)
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == "WaitForBoundPodReady"
    world.becomes_ready("default/web-0")
    assert of_type(world.decide(), MigrationEnded)
    world.gateway()
    status = world.job("j").status
    assert (status.phase, status.status, status.node_name) == ("Succeeded", "Complete", "n9")
    assert status.pod_ref is not None
    assert status.pod_ref.uid.startswith("successor")
    assert {each.type for each in status.conditions} == {
        "ReservationCreated", "ReservationScheduled", "Eviction", "PodBoundReservation", "BoundPodReady",
        "ReservationBound",
    }  # fmt: skip
    assert world.decide() == []


def test_a_job_that_evicts_directly_needs_no_place() -> None:
    world = world_with_job(until="seen", mode="EvictDirectly")
    assert not [key for key in world.objects if key[0] == RESERVATIONS]
    world.kubelets_end_pods()
    world.decide()
    world.gateway()
    assert world.job("j").status.phase == "Succeeded"


@pytest.mark.parametrize(
    ("labels", "policy", "deletes", "soft"),
    [
        ({}, "Eviction", False, False),
        ({}, "Delete", True, False),
        ({"koordinator.sh/evict-policy": "Delete"}, "Eviction", True, False),
        ({"koordinator.sh/evict-policy": "SoftEviction"}, "Eviction", False, True),
        ({"koordinator.sh/evict-policy": "Nonsense"}, "Delete", True, False),
    ],
)
def test_the_label_of_a_job_names_the_method_of_the_eviction(
    labels: dict[str, str], policy: str, deletes: bool, soft: bool
) -> None:
    world = world_with_job(until="passed", mode="EvictDirectly", args={"evictionPolicy": policy})
    body = world.objects[MIGRATION_JOBS, "j"]
    world.put(MIGRATION_JOBS, "j", body | {"metadata": body["metadata"] | {"labels": labels}})
    events = [event for _ in range(4) for event in world.decide()]
    marks = [event for event in of_type(events, FieldsDesired) if event.resource == "pods"]
    requests = of_type(events, EvictionRequested)
    assert bool(marks) == soft
    assert [request.deletes for request in requests] == ([] if soft else [deletes])
    assert len(of_type(events, MigrationEvictionDecided)) == 1
    if soft:
        world.gateway()
        world.decide()
        assert "default/web-0" in world.pods
        world.remove_pod("default/web-0")
        world.decide()
        world.gateway()
        assert world.job("j").status.phase == "Succeeded"


def test_a_refused_eviction_is_tried_again_after_growing_pauses_until_the_budget_allows_it() -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j")
    tried = []
    for second in range(60):
        if of_type(world.decide(), EvictionRequested):
            tried.append(second)
        world.gateway(refuse="its disruption budget allows none")
        world.pass_time(1)
    assert tried[:4] == [0, 3, 9, 21]
    assert world.job("j").status.condition("Eviction").message == "its disruption budget allows none"  # type: ignore[union-attr]
    for _ in range(31):
        world.pass_time(1)
        world.decide()
        world.gateway()
    assert world.pods["default/web-0"].metadata.deletion_timestamp


def test_x19_a_job_ends_at_its_time_out_and_returns_its_place() -> None:
    world = world_with_job(until="placed")
    world.pass_time(299)
    assert world.decide() == []
    world.pass_time(1)
    world.decide()
    world.gateway()
    world.decide()
    world.gateway()
    assert (world.job("j").status.phase, world.job("j").status.reason) == ("Failed", "Timeout")
    assert (RESERVATIONS, "uid-j") not in world.objects
    world.pass_time(299)
    assert world.decide() == []
    world.pass_time(1)
    world.decide()
    world.gateway()
    assert (MIGRATION_JOBS, "j") not in world.objects
    assert [event.phase for event in of_type(world.decide(), MigrationEnded)] == [""]
    assert world.decide() == []


def test_x19_a_job_without_a_time_out_is_deleted_after_half_an_hour() -> None:
    world = world_with_job(until="placed", ttl=None)
    world.pass_time(1799)
    assert world.decide() == []
    world.pass_time(1)
    assert [event.resource for event in of_type(world.decide(), ObjectDesired)] == [MIGRATION_JOBS]
    world.gateway()
    world.decide()
    world.gateway()
    assert not [key for key in world.objects if key[0] in (MIGRATION_JOBS, RESERVATIONS)]


def test_a_time_out_waits_for_an_eviction_that_may_still_be_carried_out() -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j")
    (request,) = of_type(world.decide(), EvictionRequested)
    assert request.deadline_ns == world.job("j").created_ns + 300 * 10**9
    world.pass_time(301)
    assert world.decide() == []
    world.gateway(refuse="its deadline has passed")
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == "Timeout"


def test_a_paused_job_does_nothing_until_it_is_resumed() -> None:
    world = world_with_job(until="passed", paused=True)
    world.pass_time(400)
    assert world.decide() == []
    world = world_with_job(until="placed")
    world.put(MIGRATION_JOBS, "j", world.objects[MIGRATION_JOBS, "j"] | {
        "spec": world.objects[MIGRATION_JOBS, "j"]["spec"] | {"paused": True}
    })  # fmt: skip
    world.schedule("uid-j")
    assert world.decide() == []
    world.put(MIGRATION_JOBS, "j", world.objects[MIGRATION_JOBS, "j"] | {
        "spec": world.objects[MIGRATION_JOBS, "j"]["spec"] | {"paused": False}
    })  # fmt: skip
    assert of_type(world.decide(), EvictionRequested)


def test_an_aborted_job_ends_and_returns_its_place_and_no_older_decision_revives_it() -> None:
    world = world_with_job(until="placed")
    body = world.objects[MIGRATION_JOBS, "j"]
    world.put(MIGRATION_JOBS, "j", body | {"status": body["status"] | {"phase": "Aborted"}})
    world.put(MIGRATION_JOBS, "j", body)  # the gateway writes what was desired before
    world.decide()
    world.gateway()
    assert world.job("j").status.phase == "Aborted"
    assert (RESERVATIONS, "uid-j") not in world.objects
    assert world.decide() == []


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [("Failed", "Expired", "ReservationExpired"), ("Failed", "Other", "Unschedulable")],
)
def test_a_job_fails_with_its_place(phase: str, reason: str, expected: str) -> None:
    world = world_with_job(until="placed")
    world.reservation_ends("uid-j", phase, reason)
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == expected
    assert not of_type(list(world.open.values()), EvictionRequested)


def test_a_place_on_the_same_node_is_no_destination() -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j", "n0")
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == "ForbiddenMigratePod"


def test_a_place_that_another_pod_took_ends_the_job_without_an_eviction() -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j")
    other = [{"namespace": "default", "name": "web-7", "uid": "uid-web-7"}]
    world.reservation_ends("uid-j", "Succeeded", "Succeeded", currentOwners=other)
    events = world.decide()
    world.gateway()
    assert not of_type(events, EvictionRequested)
    assert world.job("j").status.reason == "ForbiddenMigratePod"


def test_no_place_is_held_for_a_pod_that_nobody_makes_anew() -> None:
    world = World(migration_args(evictAllBarePods=True))
    world.put_pod(moved_pod("alone", node="n0"))
    world.request("j", "alone", ttl="5m0s")
    for _ in range(4):
        world.decide()
        world.gateway()
    job = world.job("j")
    assert (job.status.phase, job.status.reason) == ("Failed", "FailedCreateReservation")
    assert "has no controller" in job.status.message
    assert not [name for resource, name in world.objects if resource == RESERVATIONS]


def test_the_place_is_held_on_the_destination_of_the_case_or_nowhere() -> None:
    world = world_with_job(until="created")
    job = world.objects[MIGRATION_JOBS, "j"]
    annotations = {"descheduler.koordstream/destination": "n7"}
    world.put(MIGRATION_JOBS, "j", job | {"metadata": job["metadata"] | {"annotations": annotations}})
    world.decide()
    world.gateway()
    spec = world.objects[RESERVATIONS, "uid-j"]["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [
        {"key": "metadata.name", "operator": "NotIn", "values": ["n0"]},
        {"key": "metadata.name", "operator": "In", "values": ["n7"]},
    ]


def test_a_rejected_reservation_is_tried_again_and_reported() -> None:
    world = world_with_job(until="created")
    world.decide()
    world.gateway(refuse="spec.owners is too short")
    world.decide()
    world.gateway()
    assert world.job("j").status.reason == "FailedCreateReservation"
    world.pass_time(31)
    world.decide()
    world.gateway()
    assert (RESERVATIONS, "uid-j") in world.objects


def test_jobs_of_another_descheduler_are_left_alone() -> None:
    world = World(migration_args())
    world.workload("web", 10)
    world.request("j", "web-0")
    body = world.objects[MIGRATION_JOBS, "j"]
    marked = body["metadata"] | {"annotations": {"koordinator.sh/job-created-by": "3f0c"}}
    world.put(MIGRATION_JOBS, "j", body | {"metadata": marked})
    world.pass_time(3600)
    assert world.decide() == []


def test_a_job_with_an_unreadable_time_out_fails_with_the_field() -> None:
    world = World(migration_args())
    world.workload("web", 10)
    world.request("j", "web-0", ttl="soon")
    world.decide()
    world.gateway()
    status = world.objects[MIGRATION_JOBS, "j"]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidJob")
    assert "spec.ttl" in status["message"]
    assert world.decide() == []


def test_evictions_of_one_workload_are_limited_over_time() -> None:
    world = World(migration_args(maxMigratingPerWorkload=5, maxUnavailablePerWorkload=5, evictQPS=100))
    pods = world.workload("web", 10)
    for n in range(5):
        world.request(f"j{n}", pods[n].metadata.name, mode="EvictDirectly", ttl="10m")
    for _ in range(6):
        world.decide()
        world.gateway()
        world.pass_time(1)
    # Five in five minutes with one at once: the second follows after a minute.
    gone = [pod for pod in world.pods.values() if pod.metadata.deletion_timestamp]
    assert len(gone) == 1
    world.kubelets_end_pods()
    for _ in range(60):
        world.decide()
        world.gateway()
        world.pass_time(1)
    assert len([pod for pod in world.pods.values() if pod.metadata.deletion_timestamp]) == 1


@pytest.mark.parametrize("end", ["abort", "delete"])
def test_a_place_is_kept_for_an_eviction_that_may_still_be_carried_out(end: str) -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j")
    assert of_type(world.decide(), EvictionRequested)
    world.gateway(evicts=False)  # it waits for budget
    if end == "abort":
        body = world.objects[MIGRATION_JOBS, "j"]
        world.put(MIGRATION_JOBS, "j", body | {"status": body["status"] | {"phase": "Aborted"}})
    else:
        world.remove(MIGRATION_JOBS, "j")
    for _ in range(3):
        world.decide()
        world.gateway(evicts=False)
        world.pass_time(60)
    assert (RESERVATIONS, "uid-j") in world.objects
    world.gateway()
    world.decide()
    world.gateway()
    assert (RESERVATIONS, "uid-j") not in world.objects


def test_a_place_that_expires_after_a_refusal_ends_the_job_without_another_eviction() -> None:
    world = world_with_job(until="placed")
    world.schedule("uid-j")
    world.decide()
    world.gateway(refuse="no")
    world.reservation_ends("uid-j", "Failed", "Expired")
    world.pass_time(60)
    assert not of_type(world.decide(), EvictionRequested)
    world.gateway()
    assert world.job("j").status.reason == "ReservationExpired"


def test_a_restart_between_any_two_steps_goes_on() -> None:
    world = world_with_job(until="placed")
    world.restart()
    world.schedule("uid-j")
    world.decide()
    world.restart()
    assert world.decide() == []
    world.gateway()
    world.restart()
    world.decide()
    world.gateway()
    world.kubelets_end_pods()
    world.successor("default/web-0", "uid-j")
    world.restart()
    world.decide()
    world.gateway()
    assert world.job("j").status.phase == "Succeeded"
