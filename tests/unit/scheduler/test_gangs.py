"""Gangs: members are placed together, by PodGroup, labels or annotations, alone or as a group of gangs."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.cycle import MAX_DECISIONS
from services.scheduler.explain.why_pod_waits_now import pending_status
from services.scheduler.plugins.coscheduling.gang_placement_units import GangCounts, GangGrouping
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.scheduling import GangPlaced, PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.kube.resource_names import POD_GROUPS
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, cycles_of, node, placements, pod, unschedulable
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


def world_of(**cpus: str) -> World:
    world = World()
    for name, cpu in cpus.items():
        world.add_node(node(name, cpu=cpu))
    world.read()
    return world


def pod_group(world: World, name: str, minimum: int, **annotations: str) -> None:
    body = {"metadata": {"name": name, "namespace": "d", "annotations": annotations}, "spec": {"minMember": minimum}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name=f"d/{name}", uid=name, object=body))


def member(group: str, name: str, cpu: str = "1", **more: Any) -> Pod:
    labels = {gang.POD_GROUP_LABEL: group} | more.pop("labels", {})
    return pod(name, cpu=cpu, memory=None, labels=labels, **more)


def annotated(group: str, name: str, minimum: str, cpu: str = "1", **more: str) -> Pod:
    annotations = {gang.NAME: group, gang.MINIMUM: minimum, **more}
    return pod(name, cpu=cpu, memory=None, annotations=annotations)


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def bind(world: World, records: Any) -> None:
    """Every placed pod is observed on its node."""
    for record in records:
        if isinstance(record.event, PodPlaced):
            world.answer(record)
            before = next(
                each.event.object
                for each in reversed(world.logs["cluster"])
                if getattr(each.event, "pod_uid", "") == record.event.pod_uid and hasattr(each.event, "object")
            )
            labels, annotations = before.metadata.labels, before.metadata.annotations
            world.add_pod(
                pod(
                    record.event.pod_uid,
                    cpu=before.spec.containers[0].resources.requests["cpu"],
                    memory=None,
                    labels=labels,
                    annotations=annotations,
                    on=record.event.node,
                    phase="Running",
                )
            )
    world.read()


def test_a_gang_waits_for_its_minimum_and_is_then_placed_in_one_cycle_with_the_annotations_of_its_members() -> None:
    world = world_of(a="4", b="4")
    pod_group(world, "job", 3)
    add(world, member("job", "p0"), member("job", "p1"))
    assert world.cycles() == []
    status = pending_status(world.indexed(), "d/p0", world.now_ns)
    assert status is not None
    assert (status["code"], status["detail"]) == ("GangIncomplete", "gang d/job has 2 of 3 pods")
    add(world, member("job", "p2"))
    records = world.cycle()
    assert placements(records).keys() == {"p0", "p1", "p2"}
    annotations = [record.event.annotations for record in records if isinstance(record.event, PodPlaced)]
    assert annotations == [dict.fromkeys(gang.BIND_GROUP, "d/job") | dict.fromkeys(gang.BIND_COUNT, "3")] * 3


@pytest.mark.parametrize(
    "written",
    [
        {"labels": {gang.LIGHTWEIGHT_NAME: "job", gang.LIGHTWEIGHT_MINIMUM: "2"}},
        {"annotations": {gang.NAME: "job", gang.MINIMUM: "2"}},
    ],
)
def test_labels_and_annotations_of_pods_make_a_gang_without_a_pod_group(written: dict[str, Any]) -> None:
    world = world_of(a="4")
    add(world, pod("p0", memory=None, **written))
    assert world.cycles() == []
    add(world, pod("p1", memory=None, **written))
    assert placements(world.cycle()).keys() == {"p0", "p1"}


def test_pods_of_a_gang_without_a_readable_minimum_wait_and_say_so() -> None:
    world = world_of(a="4")
    add(world, member("job", "p0"))
    assert world.cycles() == []
    status = pending_status(world.indexed(), "d/p0", world.now_ns)
    assert status is not None
    assert (status["code"], status["detail"]) == ("GangUnknown", "d/job")
    pod_group(world, "job", 1)
    world.read()
    assert placements(world.cycles()).keys() == {"p0"}


def test_a_strict_gang_that_cannot_reach_its_minimum_is_not_placed_and_names_the_member_and_the_reason() -> None:
    world = world_of(a="2")
    pod_group(world, "job", 3)
    add(world, *(member("job", f"p{number}") for number in range(3)))
    records = world.cycle()
    assert placements(records) == {}
    messages = {uid: event.message for uid, event in unschedulable(records).items()}
    assert messages["p2"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert messages["p0"] == messages["p1"]
    assert messages["p0"] == (
        'GangGroup "d/job" gets rejected due to member Pod "d/p2" is unschedulable with reason '
        '"0/1 nodes are available: 1 Insufficient cpu.", alreadyWaitForBound: 2'
    )
    world.wait(2)
    assert world.cycles() == [], "nothing has changed"
    world.add_node(node("b", cpu="2"))
    world.read()
    assert placements(world.cycles()).keys() == {"p0", "p1", "p2"}


def test_a_member_without_a_node_does_not_fail_a_gang_that_reaches_its_minimum_without_it() -> None:
    world = world_of(a="4")
    pod_group(world, "job", 2)
    add(world, member("job", "large", "9"), member("job", "p1"), member("job", "p2"))
    records = world.cycle()
    assert placements(records).keys() == {"p1", "p2"}
    assert unschedulable(records)["large"].code == "InsufficientResource"


def test_a_satisfied_gang_places_later_members_one_by_one() -> None:
    world = world_of(a="4", b="4")
    pod_group(world, "job", 2)
    add(world, *(member("job", f"p{number}") for number in range(3)))
    first = world.cycle()
    assert len(placements(first)) == 2, "the third is not needed"
    rest = world.cycles()
    assert len(placements(rest)) == 1
    assert not next(record.event.annotations for record in rest if isinstance(record.event, PodPlaced))
    bind(world, [*first, *rest])
    world.drop_pod("p0")
    add(world, member("job", "again"))
    assert placements(world.cycles()).keys() == {"again"}


@pytest.mark.parametrize(
    ("policy", "is_placed"), [("only-waiting", False), ("waiting-and-running", True), ("once-satisfied", True)]
)
def test_a_member_that_is_created_again_follows_the_match_policy(policy: str, *, is_placed: bool) -> None:
    world = world_of(a="4", b="4")
    pod_group(world, "job", 3, **{gang.MATCH_POLICY: policy})
    add(world, *(member("job", f"p{number}") for number in range(3)))
    bind(world, world.cycles())
    world.drop_pod("p0")
    add(world, member("job", "again"))
    assert bool(placements(world.cycles())) == is_placed


def test_a_group_of_gangs_is_placed_when_each_of_them_reaches_its_minimum() -> None:
    world = world_of(a="4", b="4")
    groups = {gang.GROUPS: json.dumps(["d/b", "d/a"])}
    pod_group(world, "a", 2, **groups)
    pod_group(world, "b", 1, **groups)
    add(world, member("a", "a0"), member("a", "a1"))
    assert world.cycles() == []
    status = pending_status(world.indexed(), "d/a0", world.now_ns)
    assert status is not None
    assert status["detail"] == "gang d/b has 0 of 1 pods"
    add(world, member("b", "b0"))
    records = world.cycle()
    assert placements(records).keys() == {"a0", "a1", "b0"}
    assert {
        record.event.annotations[gang.BIND_COUNT[0]] for record in records if isinstance(record.event, PodPlaced)
    } == {"3"}


def test_gated_members_do_not_count_as_pods_that_can_be_placed() -> None:
    world = world_of(a="4")
    pod_group(world, "job", 2)
    add(world, member("job", "p0"), member("job", "p1", gates=("wait",)))
    assert world.cycles() == []
    add(world, member("job", "p1"))
    assert placements(world.cycles()).keys() == {"p0", "p1"}


def test_a_member_whose_held_node_was_released_is_pending_again() -> None:
    world = world_of(a="4")
    pod_group(world, "job", 2)
    add(world, member("job", "p0"), member("job", "p1"))
    world.hold("p0", "a")
    world.hold("p1", "a")
    assert world.cycles() == []
    world.release("p0", "a")
    world.release("p1", "a")
    world.wait(301)
    assert placements(world.cycles()).keys() == {"p0", "p1"}


def test_the_ledger_refuses_a_gang_as_a_whole_and_the_pods_it_does_not_need_wait_with_it() -> None:
    world = Teams(quota("team", "2", "2"))
    pod_group(world, "job", 3)
    world.read()
    add(world, *(member("job", f"p{number}", labels={QUOTA_NAME: "team"}) for number in range(2)))
    add(world, member("job", "free"), member("job", "more", labels={QUOTA_NAME: "team"}))
    add(world, member("job", "large", "3", labels={QUOTA_NAME: "team"}, priority=1))
    records = world.cycle()
    assert placements(records) == {}
    assert len(unschedulable(records)) == 5
    assert world.used("team") == 0
    assert world.cycle() == [], "all of it waits"


def test_a_deleted_pod_group_and_a_snapshot_leave_the_same_state() -> None:
    world = world_of(a="4")
    pod_group(world, "job", 2)
    add(world, member("job", "p0"), annotated("other", "p1", "2"), annotated("other", "p2", "x"))
    copy = SchedulerState()
    copy.restore(world.view.encode())
    assert copy.encode() == world.view.encode()
    assert copy.gangs.gang_of == world.view.gangs.gang_of
    world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="job"))
    for uid in ("p0", "p1", "p2"):
        world.drop_pod(uid)
    world.read()
    assert not world.view.gangs.gangs


GANGS, PODS = (500, 10_000) if examples(200) == 200 else (50, 1000)


def test_gangs_of_100_that_fit_nowhere_are_tried_once_each_before_ordinary_pods_that_came_later() -> None:
    """500 gangs among 10,000 pods with KOORD_EXAMPLES=all. A gang takes one place, and a cycle decides about at most
    MAX_DECISIONS pods, so that what comes before the last ordinary pod is one attempt of each gang.
    """
    cycles, decided = {}, {}
    for gangs in (0, GANGS):
        world = World()
        for number in range(4):
            world.add_node(node(f"n{number}", cpu=str(PODS), pods=str(PODS)))
        for number in range(gangs):
            pod_group(world, f"g{number}", 100)
            add(world, *(member(f"g{number}", f"g{number}-{one}", str(2 * PODS)) for one in range(100)))
        add(world, *(pod(f"p{number}", cpu="1", memory=None) for number in range(PODS)))
        cycles[gangs] = decided[gangs] = placed = 0
        while placed < PODS:
            records = world.cycle(250)
            outcomes = [len(each.pods) for each in cycles_of(records)]
            assert outcomes[0] <= MAX_DECISIONS
            placed += len(placements(records))
            cycles[gangs] += 1
            decided[gangs] += outcomes[0]
            world.wait(0.1)
    assert decided[GANGS] == PODS + 100 * GANGS
    assert cycles[GANGS] <= cycles[0] + math.ceil(100 * GANGS / (MAX_DECISIONS - 100)) + 1


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40))
def test_the_pods_of_a_gang_are_counted_as_they_are(steps: list[tuple[int, int]]) -> None:
    world = world_of(a="100")
    pod_group(world, "job", 2)
    group = world.indexed().groupings["koord-scheduler"]["Coscheduling"]
    assert isinstance(group, GangGrouping)
    for what, number in steps:
        uid = f"p{number}"
        if what == 0:
            add(world, member("job", uid))
        elif what == 1:
            add(world, member("job", uid, on="a", phase="Running"))
        elif what == 2:
            world.drop_pod(uid)
            world.read()
        elif uid in world.view.pods and what == 3:
            world.hold(uid, "a")
        elif uid in world.view.pods and what == 4:
            world.release(uid, "a")
        elif uid in world.view.pods:
            placed = world.place(uid, "a")
            world.answer(placed, "rejected")
            world.read()
        world.indexed().settle()
        gangs = world.view.gangs.gangs
        members = gangs["d/job"].members.items() if "d/job" in gangs else ()
        stages = [group.stage(*each) for each in members]
        assert group.counts("d/job") == GangCounts(*map(stages.count, ("pending", "placed", "bound")))


SIZES = st.sampled_from(["1", "2", "3"])


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "g", "h"]), SIZES, st.integers(0, 2)), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([1, 3, 256]),
)
def test_no_gang_is_placed_in_part_and_batches_change_no_placement(
    pods: list[tuple[str, str, int]], g: int, h: int, batch: int
) -> None:
    outcomes = []
    for size in (batch, 256):
        world = world_of(a="5", b="4", c="4")
        pod_group(world, "g", g)
        pod_group(world, "h", h)
        add(
            world,
            *(
                member(group, f"p{number}", cpu, priority=order)
                if group
                else pod(f"p{number}", cpu=cpu, memory=None, priority=order)
                for number, (group, cpu, order) in enumerate(pods)
            ),
        )
        placed: dict[str, str] = {}
        while records := world.cycle(size):
            placed |= placements(records)
            for name, minimum in (("g", g), ("h", h)):
                count = sum(f"p{number}" in placed for number, (group, _, _) in enumerate(pods) if group == name)
                assert count == 0 or count >= minimum
        used = dict.fromkeys(("a", "b", "c"), 0)
        for number, (_, cpu, _) in enumerate(pods):
            if f"p{number}" in placed:
                used[placed[f"p{number}"]] += int(cpu)
        assert used["a"] <= 5
        assert max(used["b"], used["c"]) <= 4
        outcomes.append(placed.keys() if batch == 256 else None)
    assert outcomes[0] == outcomes[1]


def waits_of(events: Any) -> list[GangPlaced]:
    return [each.event for each in events if isinstance(each.event, GangPlaced)]


def test_the_wait_of_a_gang_is_recorded_from_the_last_pod_that_it_needs() -> None:
    world = world_of(n="2")
    pod_group(world, "g", 2)
    add(world, member("g", "a", "2"))
    world.wait(60)
    add(world, member("g", "b"), member("g", "c"))
    assert waits_of(world.cycle()) == [], "two of them do not fit"
    world.wait(90)
    world.add_node(node("m", cpu="8"))
    world.read()
    [wait] = waits_of(world.cycle())
    assert (wait.gang, wait.waited_ns, wait.pods, wait.request["cpu"]) == ("d/g", 90 * SECOND, 2, 3000)
    assert (wait.quota, wait.priority, wait.qos) == ("", "koord-prod", "LS")
    [kept] = world.view.gang_waits
    assert (kept.waited_ns, kept.pods, kept.placed_ns) == (90 * SECOND, 2, world.now_ns)
    assert waits_of(world.cycles()) == [], "the third pod starts no gang"


def test_each_gang_of_a_group_waits_until_all_have_enough_pods() -> None:
    world = world_of(n="8")
    for name in ("x", "y"):
        pod_group(world, name, 1, **{gang.GROUPS: json.dumps(["d/x", "d/y"])})
    add(world, member("x", "a"))
    world.wait(30)
    add(world, member("y", "b", labels={"koordinator.sh/qosClass": "BE"}))
    world.wait(10)
    found = waits_of(world.cycle())
    assert [(each.gang, each.waited_ns, each.pods, each.qos) for each in found] == [
        ("d/x", 10 * SECOND, 1, "LS"),
        ("d/y", 10 * SECOND, 1, "BE"),
    ]


def test_no_wait_is_recorded_where_the_ledger_refuses_the_gang_nor_once_a_pod_was_bound() -> None:
    world = Teams(quota("team", "1", "1"))
    pod_group(world, "job", 2)
    world.read()
    add(world, *(member("job", f"p{number}", labels={QUOTA_NAME: "team"}) for number in range(2)))
    assert waits_of(world.cycle()) == []
    again = world_of(n="8")
    pod_group(again, "job", 2, **{gang.MATCH_POLICY: gang.WAITING_AND_RUNNING})
    add(again, member("job", "p0"), member("job", "p1"))
    records = again.cycle()
    assert len(waits_of(records)) == 1
    bind(again, records)
    again.drop_pod("p1")
    add(again, member("job", "p2"))
    records = again.cycle()
    assert placements(records).keys() == {"p2"}
    assert waits_of(records) == []
