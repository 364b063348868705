"""Preemption for gangs: the spec's worked examples, domains of the network, and what becomes of nominated members."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle import gang_preemption
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from shared.domain import gang
from shared.events import RecordedEvent
from shared.events.cluster import ObjectObserved
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodNominated
from shared.kube.elastic_quota import PREEMPTIBLE, QUOTA_NAME
from shared.kube.pod import Pod
from shared.kube.resource_names import POD_GROUPS
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod, use
from tests.unit.scheduler.network_worlds import RACK, SPINE, network_world, observe_topology
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

EVICTS = DEFAULT_PROFILE.replace(
    "  pluginConfig:\n",
    "  pluginConfig:\n  - {name: Coscheduling, args: {awareNetworkTopology: true, enablePreemption: true}}\n",
)
MUST_RACK = '{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'


def world_of(**cpus: str) -> World:
    world = World()
    for name, cpu in cpus.items():
        world.add_node(node(name, cpu=cpu))
    world.read()
    use(world, EVICTS)
    return world


def runs(name: str, on: str, cpu: str, priority: int = 5, **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, on=on, phase="Running", priority=priority, **more)


def job(
    world: World,
    size: int,
    cpu: str,
    *,
    minimum: int = 0,
    topology: str = "",
    more_labels: dict[str, str] | None = None,
    **more: Any,
) -> None:
    annotations = {gang.TOPOLOGY: topology} if topology else {}
    metadata = {"name": "job", "namespace": "d", "annotations": annotations}
    body = {"metadata": metadata, "spec": {"minMember": minimum or size}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name="d/job", uid="job", object=body))
    for number in range(size):
        labels = {gang.POD_GROUP_LABEL: "job", **(more_labels or {})}
        world.add_pod(pod(f"p{number}", cpu=cpu, memory=None, labels=labels, **{"priority": 100, **more}))
    world.read()


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def evicted(records: list[RecordedEvent]) -> list[str]:
    return sorted(each.event.pod_uid for each in records if isinstance(each.event, EvictionRequested))


def nominated(records: list[RecordedEvent]) -> dict[str, str]:
    return {each.event.pod_uid: each.event.node for each in records if isinstance(each.event, PodNominated)}


def test_worked_example_3_keeps_the_pods_that_leave_enough() -> None:
    world = world_of(a="8")
    add(world, runs("v1", "a", "2", 10), runs("v2", "a", "2"), runs("v3", "a", "4"))
    job(world, 1, "3", minimum=1)
    job(world, 2, "2")
    records = world.cycle()
    assert evicted(records) == ["v3"]
    assert nominated(records) == {"p0": "a", "p1": "a"}


def two_full_nodes() -> World:
    world = world_of(a="8", b="8")
    add(world, runs("va", "a", "8"), runs("vb", "b", "8"))
    return world


def test_worked_example_4_takes_one_victim_for_two_members() -> None:
    world = two_full_nodes()
    job(world, 2, "4")
    records = world.cycle()
    assert (evicted(records), nominated(records)) == (["va"], {"p0": "a", "p1": "a"})


def test_worked_example_5_counts_every_member_on_its_node() -> None:
    world = two_full_nodes()
    job(world, 3, "4")
    records = world.cycle()
    assert (evicted(records), nominated(records)) == (["va", "vb"], {"p0": "a", "p1": "a", "p2": "b"})


def test_worked_example_6_evicts_none_where_it_would_not_help() -> None:
    world = two_full_nodes()
    job(world, 2, "9")
    assert not evicted(world.cycle())
    job(world, 5, "4")
    assert not evicted(world.cycles())


def test_members_that_fit_without_victims_cost_none() -> None:
    world = world_of(a="8", b="8")
    add(world, runs("va", "a", "8"))
    job(world, 3, "4")
    records = world.cycle()
    assert evicted(records) == ["va"]
    assert sorted(nominated(records).values()) == ["a", "b", "b"]


def test_a_gang_is_placed_once_its_victims_are_gone_and_evicts_no_others_meanwhile() -> None:
    world = two_full_nodes()
    job(world, 3, "4")
    assert evicted(world.cycle()) == ["va", "vb"]
    world.wait(60)
    add(world, pod("other", cpu="4", memory=None, priority=100))
    assert not evicted(world.cycles())
    world.drop_pod("va")
    world.read()
    world.wait(60)
    assert not evicted(world.cycles())
    world.drop_pod("vb")
    world.read()
    world.wait(60)
    placed = placements(world.cycles())
    assert {"p0", "p1", "p2"} <= placed.keys()


@pytest.mark.parametrize(
    ("victim", "member"),
    [
        ({"priority": 100}, {}),
        ({"labels": {PREEMPTIBLE: "false"}}, {}),
        ({"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}}, {}),
        ({}, {"priority": None}),
    ],
)
def test_pods_that_may_not_be_evicted_stay(victim: dict[str, Any], member: dict[str, Any]) -> None:
    world = world_of(a="8")
    add(world, runs("v", "a", "8", **victim))
    job(world, 2, "4", **member)
    assert not evicted(world.cycle())


def test_without_the_argument_a_gang_evicts_none() -> None:
    world = two_full_nodes()
    use(world, EVICTS.replace("enablePreemption: true", "enablePreemption: false"))
    job(world, 2, "4")
    assert not evicted(world.cycle())


def test_a_running_gang_is_evicted_as_a_whole_where_its_minimum_is_needed() -> None:
    world = two_full_nodes()
    for uid in ("va", "vb"):
        world.drop_pod(uid)
    annotations = {gang.NAME: "low", gang.MINIMUM: "2"}
    add(world, runs("l0", "a", "8", annotations=annotations), runs("l1", "b", "8", annotations=annotations))
    job(world, 2, "4")
    assert evicted(world.cycle()) == ["l0", "l1"]


def test_all_members_are_nominated_in_the_domain_with_the_least_loss() -> None:
    world = network_world({"n1": "4", "n2": "2", "n3": "3", "n4": "5", "n5": "3"})
    use(world, EVICTS)
    add(world, runs("v1", "n1", "4", 10), runs("v2", "n2", "2", 10), runs("v4", "n4", "5"), runs("v5", "n5", "3"))
    job(world, 6, "1", topology=MUST_RACK)
    records = world.cycle()
    assert evicted(records) == ["v4", "v5"]
    assert set(nominated(records).values()) == {"n4", "n5"}
    for uid in ("v4", "v5"):
        world.drop_pod(uid)
    world.read()
    world.wait(60)
    assert set(placements(world.cycles()).values()) == {"n4", "n5"}


def test_every_domain_is_searched_for_victims() -> None:
    world = World()
    names = [f"n{number:02}" for number in range(50)]
    for name in names:
        world.add_node(node(name, cpu="2", labels={SPINE: "S", RACK: f"R{name}"}))
    observe_topology(world)
    use(world, EVICTS)
    add(world, *(runs(f"v{name}", name, "2", 200 if name < "n45" else 10) for name in names[:-1]))
    add(world, runs("least", "n49", "2", 5))
    job(world, 2, "1", topology=MUST_RACK)
    records = world.cycle()
    assert evicted(records) == ["least"], "n45 to n48 would do, and lose more"
    assert set(nominated(records).values()) == {"n49"}


PODS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([5, 10, 200])), max_size=7)


@settings(max_examples=examples(40), deadline=None)
@given(running=PODS, size=st.integers(1, 4), cpu=st.integers(1, 4), minimum=st.integers(2, 4))
def test_the_gang_fits_without_its_victims_and_with_any_of_them_it_does_not(
    running: list[tuple[str, int, int]], size: int, cpu: int, minimum: int
) -> None:
    world = world_of(a="6", b="6", c="6")
    free, amounts = dict.fromkeys("abc", 6), {}
    for number, (on, amount, priority) in enumerate(running):
        if free[on] >= amount:
            free[on] -= amount
            amounts[f"r{number}"] = (on, amount)
            world.add_pod(runs(f"r{number}", on, str(amount), priority))
    size = max(size, minimum)
    job(world, size, str(cpu), minimum=size)
    records = world.cycle()
    victims = evicted(records)

    def fits(without: list[str]) -> bool:
        left = dict(free)
        for uid in without:
            left[amounts[uid][0]] += amounts[uid][1]
        return sum(each // cpu for each in left.values()) >= size

    if placements(records):
        assert not victims
    elif victims:
        assert fits(victims)
        assert not any(fits([uid for uid in victims if uid != kept]) for kept in victims), "the fewest"
        assert len(nominated(records)) == size
    else:
        lower = [f"r{number}" for number, each in enumerate(running) if each[2] < 100 and f"r{number}" in amounts]
        assert not fits(lower)


@pytest.mark.parametrize(("limit", "expected"), [("4", []), ("8", ["own"]), ("16", ["other"])])
def test_no_pod_is_evicted_for_a_gang_that_its_quota_keeps_waiting(limit: str, expected: list[str]) -> None:
    world = Teams(quota("a", limit, limit), quota("b", "0", "16"), cpu="8")
    use(world, EVICTS)
    if limit != "4":
        add(world, runs("own", "n0", "8", labels={QUOTA_NAME: "a"}))
    add(world, runs("other", "n1", "8", priority=1, labels={QUOTA_NAME: "b"}))
    if limit == "4":
        add(world, runs("another", "n0", "8", labels={QUOTA_NAME: "b"}))
    job(world, 2, "4", more_labels={QUOTA_NAME: "a"})
    assert evicted(world.cycle()) == expected


def test_each_attempt_considers_the_next_share_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_preemption, "MAX_NODES", 2)
    world = world_of(a="4", b="4", c="4", d="4", e="16")
    add(world, *(runs(f"v-{name}", name, "4") for name in "abcd"), runs("v-e", "e", "16"))
    job(world, 2, "8")
    found = []
    for _ in range(3):
        found.append(evicted(world.cycle()))
        world.wait(601)
    assert found == [[], [], ["v-e"]]
