"""A unit of several pods is placed as a whole or not at all: by the nodes, by the ledger, and by volumes to prepare."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.framework.config.profiles import read_config
from services.scheduler.plugins.registry import REGISTRY
from shared.events import RecordedEvent
from shared.events.intents import EvictionRequested
from shared.events.scheduling import CycleDecided, PlacementReserved, PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod, unschedulable
from tests.unit.scheduler import group_plugin
from tests.unit.scheduler.group_plugin import GROUP
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota
from tests.unit.scheduler.test_volumes import claim, storage_class, volume, with_claims

REGISTERED = REGISTRY.with_plugins(group_plugin.SPEC)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint:
      enabled: [{name: LabelGroups}, {name: ElasticQuota}]
"""


def grouping(world: World) -> None:
    """The world's scheduler groups pods by their label."""
    world.cache = CycleInputs(world.view, read_config(CONFIG, REGISTERED).profiles)


def world_of(**cpus: str) -> World:
    world = World()
    for name, cpu in cpus.items():
        world.add_node(node(name, cpu=cpu))
    grouping(world)
    return world


def of(group: str, name: str, cpu: str = "1", **more: Any) -> Pod:
    labels = ({GROUP: group} if group else {}) | more.pop("labels", {})
    return pod(name, cpu=cpu, memory=None, labels=labels, **more)


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def scores(records: Sequence[RecordedEvent]) -> dict[str, tuple[str, int]]:
    return {r.event.pod_uid: (r.event.node, r.event.score) for r in records if isinstance(r.event, PodPlaced)}


def test_the_pods_of_a_unit_are_placed_together_whatever_their_classes_and_the_batch_size() -> None:
    world = world_of(a="4", b="4")
    add(world, of("", "alone"), of("g", "g1", "2"), of("", "other"), of("g", "g2", "3", priority=5))
    assert placements(world.cycle(batch=1)).keys() == {"g1", "g2"}, "the one of priority 5 brings the other"
    assert placements(world.cycles()).keys() == {"alone", "other"}


def test_a_unit_with_a_pod_that_fits_nowhere_is_not_placed_and_each_pod_records_why() -> None:
    world = world_of(a="4", b="4")
    add(world, of("g", "g1"), of("g", "g2", "9"), of("g", "g3"))
    records = world.cycle()
    assert placements(records) == {}
    conditions = {uid: (event.code, event.plugins) for uid, event in unschedulable(records).items()}
    assert conditions == {
        "g1": ("UnitNotPlaced", ("LabelGroups",)),
        "g2": ("InsufficientResource", ("NodeResourcesFit",)),
        "g3": ("UnitNotPlaced", ("LabelGroups",)),
    }
    assert "pod d/g2, which is placed together with it, cannot be placed" in unschedulable(records)["g1"].message
    world.wait(2)
    assert world.cycles() == [], "nothing has changed"


def test_a_unit_is_tried_again_when_the_pod_that_had_no_node_may_have_one() -> None:
    world = world_of(a="4", b="4")
    add(world, of("g", "g1"), of("g", "g2", "9"))
    world.cycle()
    world.wait(2)
    world.add_node(node("large", cpu="16"))
    world.read()
    assert placements(world.cycles()).keys() == {"g1", "g2"}


def test_a_new_pod_of_a_unit_is_placed_with_those_that_were_refused() -> None:
    world = world_of(a="4", b="4")
    add(world, of("g", "g1"), of("g", "g2", "9"))
    world.cycle()
    world.drop_pod("g2")
    add(world, of("g", "g3", "3"))
    assert placements(world.cycle()).keys() == {"g1", "g3"}


CPUS = st.sampled_from(["1", "2", "3"])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(CPUS, st.integers(0, 2)), min_size=1, max_size=24),
    st.lists(CPUS, min_size=1, max_size=5),
    st.integers(0, 2),
)
def test_a_unit_that_is_not_placed_changes_no_other_decision(
    alone: list[tuple[str, int]], members: list[str], priority: int
) -> None:
    outcomes = []
    for with_unit in (False, True):
        world = world_of(a="8", b="7", c="6")
        pods = [of("", f"p{number}", cpu, priority=order) for number, (cpu, order) in enumerate(alone)]
        if with_unit:
            pods[len(pods) // 2 : len(pods) // 2] = [
                *(of("g", f"g{number}", cpu, priority=priority) for number, cpu in enumerate(members)),
                of("g", "none", "99", priority=priority - 1),
            ]
        add(world, *pods)
        outcomes.append(scores(world.cycle()))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "g", "h"]), CPUS), min_size=1, max_size=20))
def test_a_cycle_places_all_of_a_unit_or_none(pods: list[tuple[str, str]]) -> None:
    world = world_of(a="5", b="4", c="4")
    add(world, *(of(group, f"p{number}", cpu) for number, (group, cpu) in enumerate(pods)))
    placed = placements(world.cycle())
    for group in ("g", "h"):
        members = {f"p{number}" in placed for number, (name, _) in enumerate(pods) if name == group}
        assert len(members) <= 1
    used = dict.fromkeys(("a", "b", "c"), 0)
    for number, (_, cpu) in enumerate(pods):
        if f"p{number}" in placed:
            used[placed[f"p{number}"]] += int(cpu)
    assert used["a"] <= 5
    assert max(used["b"], used["c"]) <= 4


def test_pods_of_a_unit_evict_none() -> None:
    world = world_of(a="4")
    add(world, of("", "low", "4", on="a", phase="Running"))
    add(world, of("g", "g1", priority=9), of("g", "g2", priority=9), of("", "alone", priority=9))
    evicted = [r.event for r in world.cycle() if isinstance(r.event, EvictionRequested)]
    assert [event.reason for event in evicted] == ["preempted by d/alone of priority 9 on node a"]


# quota


def of_team(group: str, name: str, team: str = "", cpu: str = "2", **more: Any) -> Pod:
    return of(group, name, cpu, labels={QUOTA_NAME: team} if team else {}, **more)


def test_a_unit_of_which_the_ledger_refuses_one_pod_is_taken_back_whole_and_placed_once_there_is_capacity() -> None:
    world = Teams(quota("a", "4", "4"))
    grouping(world)
    add(world, of_team("", "runs", "a", on="n0", phase="Running"))
    add(world, of_team("g", "g1", "a"), of_team("g", "g2", "a"), of_team("g", "free"), of_team("", "alone", "a"))
    records = world.cycle()
    assert placements(records).keys() == {"alone"}, "the capacity is free for the pod behind the unit"
    assert {uid: event.code for uid, event in unschedulable(records).items()} == dict.fromkeys(
        ("g1", "g2", "free"), "QuotaExceeded"
    )
    assert world.used("a") == 4000
    world.drop_pod("runs")
    world.drop_pod("alone")
    world.read()
    world.wait(2)
    assert placements(world.cycles()).keys() == {"g1", "g2", "free"}
    assert world.used("a") == 4000


def test_a_unit_refused_by_its_quota_evicts_none() -> None:
    world = Teams(quota("a", "4", "4"))
    grouping(world)
    add(world, of_team("", "runs", "a", cpu="4", on="n0", phase="Running"))
    add(world, of_team("g", "g1", "a", priority=9), of_team("g", "g2", "a", priority=9))
    records = world.cycle()
    assert placements(records) == {}
    assert not [r.event for r in records if isinstance(r.event, EvictionRequested)]


# volumes


def test_the_nodes_of_a_unit_are_held_for_the_volumes_of_all_its_pods() -> None:
    world = world_of(a="4", b="4")
    storage_class(world, "slow")
    for name in ("c1", "c2"):
        claim(world, name)
    add(
        world,
        with_claims(of("g", "g1", "3"), "c1"),
        with_claims(of("g", "g2", "3"), "c2"),
        of("g", "g3"),
        of("", "alone", "4"),
    )
    records = world.cycle()
    assert placements(records) == {}
    held = {each.event.holder_uid: each.event for each in records if isinstance(each.event, PlacementReserved)}
    assert held.keys() == {"g1", "g2", "g3"}
    assert {(event.waits_for, bool(event.unit)) for event in held.values()} == {("volumes", True)}
    assert unschedulable(records)["alone"].message == "0/2 nodes are available: 2 Insufficient cpu."
    for name, volume_name in (("c1", "v1"), ("c2", "v2")):
        assert world.cycles() == []
        volume(world, volume_name)
        claim(world, name, volume_name)
        world.read()
    assert placements(world.cycles()) == {uid: event.node for uid, event in held.items()}


def test_the_plan_of_a_cycle_is_a_value_and_its_events_are_a_function_of_it() -> None:
    world = world_of(a="4", b="4")
    add(world, of("g", "g1"), of("g", "g2"), of("", "alone"), of("", "none", "99"))
    plan = plan_cycle(world.indexed(), world.now_ns, 256)
    assert [(each.pod.uid, each.unit) for each in plan.placed()] == [("g1", 1), ("g2", 1), ("alone", 0)]
    assert drafts_of(plan) == drafts_of(plan)
    assert isinstance(drafts_of(plan)[0].event, CycleDecided)
    assert drafts_of(plan._replace(decisions=())) == ()
