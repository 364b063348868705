"""The status of PodGroups: phases and counts, as upstream's controller has them, written when they change."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.scheduler.gangs.pod_group_status import GIVEN_UP_NS, PodGroupStatus, desired_status, pod_group_drafts
from services.scheduler.service_manifest import MANIFEST
from services.scheduler.state.gang_records import GangRecord, Member
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired
from shared.kube.instants import SECOND, instant_text
from shared.kube.resource_names import POD_GROUPS
from shared.runtime.intent_rights import refusal
from tests.support.scheduling_world import START_NS, World, node, pod
from tests.unit.scheduler.interleavings import assert_one_state

NOW = instant_text(START_NS)


def record(minimum: int, **counts: int) -> GangRecord:
    """A gang by the number of its pods: `waiting` ones, `starting` ones on a node, and those of other phases."""
    phases = {"waiting": "Pending", "starting": "Pending"}
    members = {
        f"{kind}{number}": Member(phases.get(kind, kind.capitalize()), kind != "waiting", f"set-{number % 2}")
        for kind, count in counts.items()
        for number in range(count)
    }
    settings = gang.settings_of_pod_group("d/job", {"spec": {"minMember": minimum}})
    return GangRecord(members=members, pod_group=settings, has_pod_group=True)


@pytest.mark.parametrize(
    ("counts", "phase"),
    [
        ({"waiting": 2}, "Pending"),
        ({"waiting": 3}, "Scheduling"),
        ({"waiting": 1, "starting": 2}, "Scheduling"),
        ({"starting": 1, "running": 2}, "Scheduled"),
        ({"running": 3}, "Running"),
        ({"running": 2, "succeeded": 1}, "Running"),
        ({"running": 2, "failed": 1}, "Failed"),
        ({"running": 1, "failed": 1, "waiting": 1}, "Scheduling"),
        ({"succeeded": 3}, "Finished"),
        ({"succeeded": 3, "failed": 1}, "Finished"),
    ],
)
def test_the_phase_follows_from_the_members(counts: dict[str, int], phase: str) -> None:
    assert desired_status(record(3, **counts), PodGroupStatus(), "d/job", START_NS).phase == phase


def test_counts_owners_and_the_time_of_the_first_attempt_are_kept() -> None:
    first = desired_status(record(3, waiting=3), PodGroupStatus(), "d/job", START_NS)
    assert first == PodGroupStatus("Scheduling", "d/set-0,d/set-1", schedule_start_time=NOW)
    after = desired_status(record(3, running=2, succeeded=1, failed=0), first, "d/job", START_NS + 60 * SECOND)
    assert after == PodGroupStatus("Running", "d/set-0,d/set-1", 3, 2, 1, 0, NOW)


@pytest.mark.parametrize("phase", ["Failed", "Finished"])
def test_the_last_phases_are_final(phase: str) -> None:
    there = PodGroupStatus(phase)
    assert desired_status(record(3, running=3), there, "d/job", START_NS) == there


def test_a_gang_that_loses_all_its_pods_is_pending_again() -> None:
    assert desired_status(record(3), PodGroupStatus("Running", scheduled=3, running=3), "d/job", START_NS).phase == (
        "Pending"
    )


class Written(World):
    """A world whose desired statuses are applied to the objects."""

    def __init__(self) -> None:
        super().__init__()
        self.add_node(node("a"))
        self.body: dict[str, Any] = {
            "metadata": {"name": "job", "namespace": "d", "uid": "u1", "creationTimestamp": NOW},
            "spec": {"minMember": 2},
        }
        self.observe_group()

    def observe_group(self, status: Mapping[str, Any] | None = None) -> None:
        self.body = {**self.body, "status": {**self.body.get("status", {}), **(status or {})}}
        uid = self.body["metadata"]["uid"]
        self.observe(ObjectObserved(resource=POD_GROUPS, name="d/job", uid=uid, object=self.body))
        self.read()

    def write(self) -> list[FieldsDesired]:
        """Decides what is to be written, and records it as the service does."""
        cache = self.indexed()
        cache.settle()
        drafts = pod_group_drafts(self.view, cache.changed_gangs, self.now_ns)
        cache.changed_gangs.clear()
        for draft in drafts:
            self.fold(self.append("scheduling", draft.event, None))
        return [draft.event for draft in drafts if isinstance(draft.event, FieldsDesired)]

    def add_member(self, name: str, **more: Any) -> None:
        self.add_pod(pod(name, memory=None, labels={gang.POD_GROUP_LABEL: "job"}, **more))
        self.read()


def test_a_status_is_written_once_and_only_when_it_changes() -> None:
    world = Written()
    world.add_member("p0")
    [written] = world.write()
    assert written.patch["status"]["phase"] == "Pending"
    assert refusal("scheduling", MANIFEST.intents, written) == ""
    world.add_member("p1")
    [written] = world.write()
    assert written.patch["status"]["phase"] == "Scheduling"
    world.wait(1)
    world.observe_group({"phase": "Pending"})  # the first write, observed late
    assert world.write() == [], "the second is on its way"
    world.observe_group(written.patch["status"])
    assert world.write() == []
    world.add_member("p0", on="a", phase="Running")
    world.add_member("p1", on="a", phase="Running")
    [written] = world.write()
    assert written.patch["status"] == {
        "phase": "Running", "occupiedBy": "", "scheduled": 2, "running": 2, "succeeded": 0, "failed": 0,
        "scheduleStartTime": NOW,
    }  # fmt: skip
    copy = SchedulerState()
    copy.restore(world.view.encode())
    assert copy.encode() == world.view.encode()


def test_a_pod_group_that_is_created_again_gets_a_status_of_its_own() -> None:
    world = Written()
    assert len(world.write()) == 1
    world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="u1"))
    world.read()
    assert world.write() == []
    world.body["metadata"]["uid"] = "u2"
    world.observe_group()
    assert [each.uid for each in world.write()] == ["u2"]
    assert assert_one_state(world).pod_group_statuses["d/job"].uid == "u2"
    world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="u2"))
    state = assert_one_state(world)
    state.encode()
    assert not state.pod_group_statuses


def test_a_restarted_scheduler_writes_what_a_lost_one_has_not() -> None:
    world = Written()
    world.add_member("p0")
    world.cache = None
    assert len(world.write()) == 1
    world.cache = None
    assert world.write() == []


@pytest.mark.parametrize(("delay_ns", "count"), [(GIVEN_UP_NS, 1), (GIVEN_UP_NS + SECOND, 0)])
def test_a_pod_group_whose_scheduling_began_too_late_is_left_as_it_is(delay_ns: int, count: int) -> None:
    world = Written()
    for name in ("p0", "p1"):
        world.add_member(name, on="a", phase="Running")
    began = instant_text(START_NS + delay_ns)
    world.observe_group({"phase": "Scheduled", "scheduled": 2, "scheduleStartTime": began})
    assert len(world.write()) == count


def test_a_status_that_cannot_be_read_is_written_anew_and_a_bad_minimum_writes_none() -> None:
    world = Written()
    world.observe_group({"phase": 7})
    assert [each.patch["status"]["phase"] for each in world.write()] == ["Pending"]
    world.body["spec"] = {"minMember": "two"}
    world.observe_group()
    assert world.write() == []
