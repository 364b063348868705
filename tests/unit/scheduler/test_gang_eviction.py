"""A gang that lost a member to other services, or whose policy ends it when one fails, is evicted as a whole."""

import msgspec
import pytest

from services.scheduler.gangs.evict_rest_of_gang import MAX_AGE_NS, gang_eviction_drafts
from services.scheduler.service_manifest import MANIFEST
from services.scheduler.state.gang_records import GangRecord, Member
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events import Cause, Event
from shared.events.cluster import EvictionRejected, ObjectObserved, PodEvicted
from shared.events.intents import EvictionRequested
from shared.events.scheduling import GangEvictionDecided
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.kube.resource_names import POD_GROUPS, RESERVATIONS
from shared.runtime.intent_rights import refusal
from tests.support.scheduling_world import World, node, pod
from tests.unit.scheduler.interleavings import assert_one_state

QUOTA = Cause("quota", 7)


def pod_group(world: World, name: str, minimum: int, **annotations: str) -> None:
    body = {"metadata": {"name": name, "namespace": "d", "annotations": annotations}, "spec": {"minMember": minimum}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name=f"d/{name}", uid=name, object=body))


def member(name: str, group: str = "job", phase: str = "Running", *, deleting: bool = False, on: str = "a") -> Pod:
    return pod(name, cpu="1", memory=None, on=on, phase=phase, labels={gang.POD_GROUP_LABEL: group}, deleting=deleting)


def running(minimum: int, **annotations: str) -> World:
    """A gang of four runs on a node."""
    world = World()
    world.add_node(node("a", cpu="16"))
    pod_group(world, "job", minimum, **annotations)
    for number in range(4):
        world.add_pod(member(f"p{number}"))
    return world


def lose(world: World, uid: str, cause: Cause = QUOTA) -> None:
    """The gateway has evicted a pod, which terminates."""
    world.observe(PodEvicted(pod=f"d/{uid}", pod_uid=uid, node="a"), cause)
    world.add_pod(member(uid, deleting=True))


def decided(world: World) -> list[Event]:
    """Decides as the service does, once a second; returns the events, appended and folded."""
    world.read()
    cache = world.indexed()
    cache.settle()
    drafts = gang_eviction_drafts(cache, cache.changed_gangs, world.now_ns)
    cache.changed_gangs.clear()
    for draft in drafts:
        world.fold(world.append("scheduling", draft.event, draft.cause))
    return [draft.event for draft in drafts]


def evicted(world: World) -> list[str]:
    return [event.pod_uid for event in decided(world) if isinstance(event, EvictionRequested)]


@pytest.mark.parametrize("cause", [QUOTA, Cause("nodes-0", 3), Cause("descheduling", 1)])
def test_an_eviction_that_leaves_too_few_members_ends_the_gang(cause: Cause) -> None:
    world = running(4)
    assert decided(world) == []
    lose(world, "p1", cause)
    decision, *requests = decided(world)
    others = ("d/p0", "d/p2", "d/p3")
    assert decision == GangEvictionDecided("d/job", "d/p1", "p1", "evicted", left=3, minimum=4, pods=others)
    reason = "gang d/job has 3 of 4 pods left since d/p1 was evicted"
    assert requests == [EvictionRequested(pod_uid=name[2:], pod=name, reason=reason) for name in others]
    [cause_of_all] = {record.cause for record in world.logs["scheduling"]}
    assert cause_of_all is not None
    assert isinstance(world.logs["cluster"][cause_of_all.seq - 1].event, PodEvicted)
    rights = [refusal("scheduling", MANIFEST.intents, each) for each in requests]
    assert rights == [""] * 3
    assert decided(world) == [], "once"
    assert assert_one_state(world).gangs.gangs["d/job"].loss is not None


def test_members_beyond_the_minimum_may_be_evicted() -> None:
    world = running(3)
    lose(world, "p1")
    assert decided(world) == []
    lose(world, "p2")
    assert evicted(world) == ["p0", "p3"]


def test_our_own_evictions_and_deletions_by_others_end_no_gang() -> None:
    world = running(4)
    lose(world, "p1", Cause("scheduling", 9))
    world.add_pod(member("p2", deleting=True))
    world.drop_pod("p3")
    assert decided(world) == []


def test_gangs_of_a_group_end_together() -> None:
    groups = {gang.GROUPS: '["d/job", "d/launcher"]'}
    world = running(4, **groups)
    pod_group(world, "launcher", 1, **groups)
    world.add_pod(member("l0", "launcher"))
    world.add_pod(member("other", "third"))
    lose(world, "l0")
    assert evicted(world) == ["p0", "p1", "p2", "p3"]


def test_nobody_ends_the_gang_of_another_by_naming_it() -> None:
    world = running(4)
    pod_group(world, "mine", 1, **{gang.GROUPS: '["d/job", "d/mine"]', gang.FAILURE_POLICY: gang.EVICT})
    world.add_pod(member("m0", "mine"))
    world.add_pod(member("m0", "mine", "Failed"))
    assert decided(world) == []


def test_members_that_were_created_after_the_loss_stay() -> None:
    world = running(4)
    lose(world, "p1")
    world.add_pod(member("p4"))
    assert evicted(world) == ["p0", "p2", "p3"]
    world.add_pod(member("p5"))
    assert decided(world) == []


def test_a_refused_eviction_is_not_repeated() -> None:
    world = running(4)
    lose(world, "p1")
    assert len(evicted(world)) == 3
    requested = next(each for each in world.logs["scheduling"] if isinstance(each.event, EvictionRequested))
    refused = EvictionRejected(pod="d/p0", pod_uid="p0", reason="its disruption budget")
    world.observe(refused, Cause("scheduling", requested.seq))
    world.add_pod(member("p7", "third"))
    assert decided(world) == []
    world.cache = None
    assert decided(world) == [], "nor by the next writer"


def test_an_old_loss_ends_no_gang() -> None:
    world = running(4)
    lose(world, "p1")
    world.wait(MAX_AGE_NS // SECOND + 1)
    assert decided(world) == []


@pytest.mark.parametrize(
    ("policy", "minimum", "victims"),
    [("", 4, []), ("Continue", 4, []), ("No", 4, []), ("Evict", 4, ["p0", "p2", "p3"]), ("Evict", 3, [])],
)
def test_the_policy_decides_about_the_others_when_a_member_fails(policy: str, minimum: int, victims: list[str]) -> None:
    world = running(minimum, **{gang.FAILURE_POLICY: policy})
    world.add_pod(member("p1", phase="Failed"))
    assert evicted(world) == victims


def test_the_record_of_a_failed_member_names_it() -> None:
    world = running(4, **{gang.FAILURE_POLICY: gang.EVICT})
    world.add_pod(member("p0", phase="Succeeded"))
    world.add_pod(member("p1", phase="Failed"))
    decision, *requests = decided(world)
    assert decision == GangEvictionDecided("d/job", "d/p1", "p1", "failed", left=3, minimum=4, pods=("d/p2", "d/p3"))
    assert {each.reason for each in requests if isinstance(each, EvictionRequested)} == {
        "gang d/job has 3 of 4 pods left since d/p1 failed"
    }
    assert_one_state(world)


def test_a_group_has_the_first_policy_that_a_gang_of_it_declares() -> None:
    groups = {gang.GROUPS: '["d/job", "d/launcher"]'}
    world = running(4, **groups)
    pod_group(world, "launcher", 1, **groups, **{gang.FAILURE_POLICY: gang.EVICT})
    world.add_pod(member("l0", "launcher"))
    world.add_pod(member("p1", phase="Failed"))
    assert evicted(world) == ["l0", "p0", "p2", "p3"]


def test_a_member_that_fails_while_it_is_deleted_or_had_failed_before_ends_no_gang() -> None:
    world = running(4, **{gang.FAILURE_POLICY: gang.EVICT})
    world.add_pod(member("p1", phase="Failed", deleting=True))
    world.add_pod(member("late", phase="Failed"))
    assert decided(world) == []


def test_pods_may_declare_the_policy_themselves() -> None:
    world = World()
    world.add_node(node("a", cpu="16"))
    annotations = {gang.NAME: "job", gang.MINIMUM: "2", gang.FAILURE_POLICY: gang.EVICT}

    def own(name: str, phase: str) -> Pod:
        return pod(name, cpu="1", memory=None, on="a", phase=phase, annotations=annotations)

    world.add_pod(own("p0", "Running"))
    world.add_pod(own("p1", "Running"))
    world.add_pod(own("p1", "Failed"))
    assert evicted(world) == ["p0"]


def test_a_snapshot_keeps_the_loss_and_one_of_before_has_none() -> None:
    world = running(4)
    lose(world, "p1")
    world.read()
    copy = SchedulerState()
    copy.restore(world.view.encode())
    assert copy.encode() == world.view.encode()
    assert copy.gangs.gangs["d/job"].loss == world.view.gangs.gangs["d/job"].loss
    old = msgspec.msgpack.encode([{"u": ["Running", True, "owner", 3]}, None, None, False, True, 5])
    record = msgspec.msgpack.decode(old, type=GangRecord)
    assert record == GangRecord(members={"u": Member("Running", True, "owner", 3)}, was_bound=True, changed_seq=5)


def held_place(world: World, name: str) -> None:
    """A Reservation is available that was made from a member, as the descheduler makes them."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"namespace": "d", "labels": {gang.POD_GROUP_LABEL: "job"}},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container]},
    }
    body = {
        "metadata": {"name": name, "uid": name},
        "spec": {"allocateOnce": True, "ttl": "0s", "owners": [{"labelSelector": {}}], "template": template},
        "status": {"phase": "Available", "nodeName": "a"},
    }
    world.observe(ObjectObserved(resource=RESERVATIONS, name=name, uid=name, object=body))


def test_a_member_whose_place_is_held_may_leave_a_gang_at_its_minimum() -> None:
    world = running(4)
    for name in ("place-1", "place-2"):
        held_place(world, name)
    for uid in ("p1", "p2"):
        lose(world, uid, Cause("descheduling", 1))
    assert decided(world) == []
    lose(world, "p3", Cause("descheduling", 1))
    assert evicted(world) == ["p0"]
