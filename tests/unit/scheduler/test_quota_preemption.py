"""Preemption inside a quota: less important pods of a quota are evicted for a pod that does not fit into it.

Source: spec/quota.md 6.3.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.parity.upstream.quota.node_victims import Candidate as UpstreamCandidate
from cli.parity.upstream.quota.node_victims import reprieved
from services.quota_ledger.settings import LedgerSettings
from services.scheduler.cache.disruption_budgets import Budget, Victim
from services.scheduler.explain.explain_pod import explain
from services.scheduler.plugins.elastic_quota.victims import eviction_order, select_victims
from shared.domain.label_selectors import canonical
from shared.events import Cause, RecordedEvent
from shared.events.cluster import EvictionFailed, EvictionRejected
from shared.events.intents import EvictionRequested
from shared.events.scheduling import CycleDecided, PodNominated, PodUnschedulable
from shared.kube.elastic_quota import PREEMPTIBLE, QUOTA_NAME
from shared.kube.pod import Pod, ResourceRequirements
from shared.kube.selectors import LabelSelector
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import placements, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

# the choice

Pods = Sequence[tuple[int, int, int]]
"""(priority, started, cpu) of each."""


def turns(pods: Pods, budgets: Sequence[Budget] = (), refused: Sequence[str] = ()) -> Any:
    victims = [(Victim(f"v{n}", f"d/v{n}", {}, p, s), {"cpu": c}) for n, (p, s, c) in enumerate(pods)]
    return eviction_order(victims, budgets, refused)


def gone(pods: Pods, priority: int, cpu: int, **more: Any) -> list[str] | None:
    chosen = select_victims(turns(pods, **more), priority, {"cpu": cpu})
    return None if chosen is None else sorted(each.victim.uid for each in chosen)


def test_the_least_important_go_and_no_more_than_needed() -> None:
    pods = [(0, 1, 4), (1, 1, 6), (5, 1, 8)]
    assert gone(pods, 10, 3) == ["v0"]
    assert gone(pods, 10, 9) == ["v0", "v1"]
    assert gone(pods, 10, 5) == ["v1"], "the smaller one is given back: without it there is room as well"
    assert gone(pods, 5, 12) is None, "equals do not give way, and the others are not enough: nobody goes"
    assert gone(pods, 10, 0) == []


def test_those_that_must_or_did_stay_go_last() -> None:
    pods = [(0, 1, 4), (1, 1, 4)]
    assert gone(pods, 10, 4, refused=["v0"]) == ["v1"]
    selector = canonical(LabelSelector(match_labels={"app": "x"}))
    assert selector is not None
    [first, second] = eviction_order(
        [(Victim("a", "d/a", {"app": "x"}, 0, 1), {"cpu": 4}), (Victim("b", "d/b", {}, 3, 1), {"cpu": 4})],
        [Budget("d", selector, 0)],
        (),
    )
    assert (first.victim.uid, second.victim.uid, second.is_last_resort) == ("b", "a", True)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(1, 7),
    st.integers(1, 12),
)
def test_on_one_node_it_is_upstreams_choice_where_that_makes_room_and_nobody_goes_where_it_does_not(
    pods: Pods, priority: int, request: int
) -> None:
    used = {"cpu": sum(cpu for *_, cpu in pods)}
    weaker = [
        UpstreamCandidate(f"v{n}", {"cpu": cpu}, own, started * 100 + n, violates=False)
        for n, (own, started, cpu) in enumerate(pods)
        if own < priority
    ]
    theirs = reprieved(weaker, {"cpu": request}, used, used, lambda _: True)
    assert theirs is not None, "the node refuses nobody"
    mine = gone([(own, started * 100 + n, cpu) for n, (own, started, cpu) in enumerate(pods)], priority, request)
    freed = sum(candidate.counted["cpu"] for candidate in weaker)
    assert mine == (sorted(victim.pod for victim in theirs.victims) if freed >= request else None)


# in cycles


def of(team: str, name: str, cpu: str = "2", priority: int = 0, **more: Any) -> Pod:
    labels = {QUOTA_NAME: team, **more.pop("labels", {})}
    return pod(name, cpu=cpu, memory=None, priority=priority, labels=labels, **more)


def add(world: Teams, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def runs(world: Teams, *pods: Pod) -> None:
    add(world, *(msgspec.structs.replace(p, status=msgspec.structs.replace(p.status, phase="Running")) for p in pods))


def evicted(records: Sequence[RecordedEvent]) -> list[str]:
    return sorted(record.event.pod_uid for record in records if isinstance(record.event, EvictionRequested))


def nominated(records: Sequence[RecordedEvent]) -> list[PodNominated]:
    return [record.event for record in records if isinstance(record.event, PodNominated)]


def full(promised: str = "6") -> Teams:
    """Team a runs three pods of 2 cores in a quota of 6; team b has room."""
    world = Teams(quota("a", promised, "6"), quota("b", "4", "60"))
    runs(world, of("a", "low", on="n0"), of("a", "mid", priority=5, on="n1"), of("a", "old", priority=5, on="n0"))
    runs(world, of("b", "theirs", on="n0"))
    assert world.used("a") == 6000
    return world


def test_a_pod_its_quota_refuses_has_a_lesser_one_of_it_go_and_comes_once_that_is_gone() -> None:
    world = full()
    add(world, of("a", "p", priority=100))
    records = world.cycle()
    assert placements(records) == {}
    assert evicted(records) == ["low"]
    [nomination] = nominated(records)
    assert (nomination.pod_uid, nomination.quota, nomination.victims, bool(nomination.node)) == (
        "p",
        "a",
        ("low",),
        True,
    )
    world.wait(20)
    assert evicted(world.cycles()) == [], "it waits for the one that was evicted"
    world.drop_pod("low")
    world.read()
    assert placements(world.cycles()) == {"p": nomination.node}
    assert world.used("a") == 6000


def test_the_room_that_was_made_is_kept_from_the_pod_that_left_it() -> None:
    world = full()
    add(world, of("a", "p", priority=100))
    world.cycle()
    world.drop_pod("low")
    add(world, of("a", "low-again"), of("b", "other"))
    records = world.cycle()
    assert placements(records).keys() == {"other"}, "p is in its backoff; its room is not to be had"
    [unschedulable] = [r.event for r in records if isinstance(r.event, PodUnschedulable)]
    assert "the capacity in it is kept for d/p of priority 100" in unschedulable.message
    world.wait(20)
    assert placements(world.cycles()).keys() == {"p"}
    assert world.used("a") == 6000
    world.drop_pod("mid")
    world.read()
    world.wait(20)
    assert placements(world.cycles()).keys() == {"low-again"}, "what comes free then is for whoever waits"


def test_when_the_pod_for_whom_room_was_made_goes_the_others_may_have_it() -> None:
    world = full()
    add(world, of("a", "p", priority=100))
    world.cycle()
    world.drop_pod("low")
    add(world, of("a", "low-again"))
    world.cycle()
    world.drop_pod("p")
    world.read()
    world.wait(20)
    assert placements(world.cycles()).keys() == {"low-again"}


@pytest.mark.parametrize(
    ("world", "late"),
    [
        pytest.param(full(), of("a", "p", priority=0), id="equals do not give way"),
        pytest.param(full(), of("a", "p", cpu="7", priority=100), id="all together are not enough"),
        pytest.param(full("1"), of("a", "p", priority=100, labels={PREEMPTIBLE: "false"}), id="min is used up"),
    ],
)
def test_nobody_goes_in_vain(world: Teams, late: Pod) -> None:
    add(world, late)
    assert evicted(world.cycles()) == []


def test_non_preemptible_pods_stay_and_a_pod_of_policy_never_preempts_none() -> None:
    world = Teams(quota("a", "6", "6"))
    runs(world, of("a", "kept", on="n0", labels={PREEMPTIBLE: "false"}), of("a", "x", on="n0"), of("a", "y", on="n1"))
    polite = of("a", "polite", priority=100)
    add(world, msgspec.structs.replace(polite, spec=msgspec.structs.replace(polite.spec, preemption_policy="Never")))
    assert evicted(world.cycles()) == []
    add(world, of("a", "p", cpu="4", priority=50))
    world.wait(20)
    assert evicted(world.cycles()) == ["x", "y"]


def test_two_pods_of_a_cycle_rest_on_different_victims() -> None:
    world = full()
    add(world, of("a", "p", priority=100), of("a", "q", priority=50))
    records = world.cycle()
    assert {nomination.pod_uid: len(nomination.victims) for nomination in nominated(records)} == {"p": 1, "q": 1}
    assert len(evicted(records)) == 2


def test_a_victim_that_stays_makes_another_one_go() -> None:
    world = full()
    add(world, of("a", "p", priority=100))
    eviction = next(record for record in world.cycle() if isinstance(record.event, EvictionRequested))
    world.observe(EvictionRejected(pod="d/low", pod_uid="low", reason="budget"), Cause("scheduling", eviction.seq))
    world.read()
    world.wait(20)
    [other] = evicted(world.cycles())
    assert other in ("mid", "old")


def test_a_pod_loses_its_nomination_once_its_victim_stays_and_no_other_may_go() -> None:
    """Others of its quota may then have what was kept for it, although it waits."""
    world = full()
    add(world, of("a", "p", priority=100))
    eviction = next(record for record in world.cycle() if isinstance(record.event, EvictionRequested))
    world.observe(EvictionFailed(pod="d/low", pod_uid="low", reason="too old"), Cause("scheduling", eviction.seq))
    runs(world, *(of("a", name, priority=200, on=on) for name, on in (("low", "n0"), ("mid", "n1"), ("old", "n0"))))
    world.read()
    world.wait(20)
    records = world.cycles()
    assert [(each.pod_uid, each.node, bool(each.reason)) for each in nominated(records)] == [("p", "", True)]
    world.drop_pod("low")
    world.read()
    add(world, of("a", "q", cpu="1", priority=100))
    assert "q" in placements(world.cycles())


def test_a_pod_without_a_node_has_its_own_team_go_first_and_no_other_team_in_vain() -> None:
    world = Teams(quota("a", "4", "4"), quota("b", "4", "60"), cpu="4", nodes=1)
    runs(world, of("b", "theirs", on="n0"), of("a", "own", on="n0"))
    add(world, of("a", "p", priority=100))
    assert evicted(world.cycles()) == ["own"]
    short = Teams(quota("a", "2", "2"), quota("b", "4", "60"), cpu="4", nodes=2)
    runs(short, of("b", "theirs", cpu="4", on="n0"), of("a", "own", on="n1", priority=100), of("b", "x", on="n1"))
    add(short, of("a", "p", priority=100))
    assert evicted(short.cycles()) == [], "its quota has no room, so that others would go for nothing"


def test_an_ancestor_that_is_short_counts_where_ancestors_are_compared() -> None:
    org = quota("org", "4", "4", is_parent=True)
    world = Teams(
        org, quota("a", "2", "4", "org"), quota("b", "2", "4", "org"), settings=LedgerSettings(check_parents=True)
    )
    runs(world, of("a", "low", on="n0"), of("b", "other", on="n0"))
    add(world, of("a", "p", priority=100))
    assert evicted(world.cycles()) == ["low"]


def test_the_explanations_of_preemptor_and_victim_name_each_other() -> None:
    world = full()
    add(world, of("a", "p", priority=100))
    [nomination] = nominated(world.cycle())
    records = [record for log in world.logs.values() for record in log]
    of_p = explain([r for r in records if getattr(r.event, "pod_uid", "") == "p" or isinstance(r.event, CycleDecided)])
    assert of_p.status == "nominated"
    assert of_p.summary == (
        f"cycle {nomination.cycle} evicts pods of quota a for it: d/low (priority 0); within every disruption budget; "
        f"it is nominated for {nomination.node}"
    )
    of_low = explain([r for r in records if r.context != "quota" and getattr(r.event, "pod_uid", "") == "low"])
    assert of_low.steps[-1].text == "its eviction is requested: preempted by d/p of priority 100 in quota a"


def test_the_example_of_the_document_is_what_happens() -> None:
    document = (Path(__file__).parents[3] / "docs" / "quota.md").read_text()
    example = document.split("## Preemption inside a quota")[1].split("\n## ")[0]

    def build(name: str, priority: int, on: str = "", start: str = "") -> Pod:
        found = of("ci", name, on=on, priority=priority)
        status = msgspec.structs.replace(found.status, start_time=start or None)
        metadata = msgspec.structs.replace(found.metadata, namespace="ci")
        return msgspec.structs.replace(found, metadata=metadata, status=status)

    def world_with(cpu: str) -> tuple[Teams, list[RecordedEvent]]:
        world = Teams(quota("ci", "6", "6"), nodes=1)
        runs(world, build("nightly", 0, "n0"), build("docs", 5, "n0", "2026-01-01T00:00:00Z"))
        runs(world, build("release", 5, "n0", "2026-01-02T00:00:00Z"))
        hotfix = build("hotfix", 100)
        requests = ResourceRequirements(requests={"cpu": cpu})
        containers = (msgspec.structs.replace(hotfix.spec.containers[0], resources=requests),)
        add(world, msgspec.structs.replace(hotfix, spec=msgspec.structs.replace(hotfix.spec, containers=containers)))
        return world, world.cycle()

    world, _ = world_with("2")
    records = [record for log in world.logs.values() for record in log]
    for uid in ("hotfix", "nightly"):
        own = [r for r in records if getattr(r.event, "pod_uid", "") == uid or isinstance(r.event, CycleDecided)]
        explanation = explain([r for r in own if r.context != "quota"], uid)
        assert (explanation.summary if uid == "hotfix" else explanation.steps[-1].text) in example, uid
    assert evicted(world_with("4")[1]) == ["nightly", "release"], "nightly and the later one of the other two"
