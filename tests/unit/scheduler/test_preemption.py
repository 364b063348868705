"""Preemption: the victims, the node, and the time until they have terminated. Examples by their place in
spec/scheduler-core.md 2.7.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from services.scheduler.cache.disruption_budgets import Budget, Victim
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.explain_pod import explain
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.victim_selection import Candidate, by_importance, choose_victims, pick
from services.scheduler.plugins.default_preemption.args import BadPreemptionArgs, PreemptionArgs, read_preemption_args
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.label_selectors import Selector, canonical
from shared.events import Cause, RecordedEvent
from shared.events.cluster import EvictionFailed, EvictionRejected, ObjectObserved
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import CycleDecided, PodNominated
from shared.kube.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from shared.kube.selectors import LabelSelector
from tests.support.scheduling_world import World, node, placements, pod, use
from tests.unit.scheduler.interleavings import assert_one_state

HOST = "kubernetes.io/hostname"


def victim(name: str, priority: int, started_ns: int = 1, **labels: str) -> Victim:
    return Victim(name, f"d/{name}", labels, priority, started_ns)


def candidate(name: str, *priorities: int, violations: int = 0, started: Sequence[int] = ()) -> Candidate:
    times = started or [1] * len(priorities)
    victims = [victim(f"{name}{n}", p, t) for n, (p, t) in enumerate(zip(priorities, times, strict=True))]
    return Candidate(name, tuple(by_importance(victims)), violations)


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        pytest.param(
            [candidate("A", 100, 100), candidate("B", 100), candidate("C", 50, 50, 50)], "C", id="2.7 highest"
        ),
        pytest.param([candidate("A", 100, 100), candidate("B", 100)], "B", id="2.7 sum"),
        pytest.param([candidate("A", 1000), candidate("D", 1, violations=1)], "A", id="2.7 budgets first"),
        pytest.param([candidate("A", -5, -5), candidate("B", -5)], "B", id="negative priorities weigh as well"),
        pytest.param(
            [candidate("A", 5, 5, started=(1, 9)), candidate("B", 5, 5, started=(2, 3))], "B", id="started last"
        ),
        pytest.param([candidate("A", 5), candidate("B", 5)], "A", id="first"),
    ],
)
def test_the_node_that_loses_least_is_picked(candidates: list[Candidate], chosen: str) -> None:
    picked = pick(candidates)
    assert picked is not None
    assert picked.node == chosen


class Cpus:
    """A node of which only the CPUs matter."""

    def __init__(self, cpus: int, selected: int, taken: Mapping[str, int]) -> None:
        self.free = cpus - sum(taken.values())
        self.selected = selected
        self.taken = taken

    def remove(self, one: Victim) -> None:
        self.free += self.taken[one.uid]

    def put_back(self, one: Victim) -> None:
        self.free -= self.taken[one.uid]

    def fits(self) -> bool:
        return self.free >= self.selected

    def choose(self, victims: Sequence[Victim], *budgets: Budget) -> tuple[list[str], int] | None:
        chosen = choose_victims(victims, budgets, remove=self.remove, put_back=self.put_back, fits=self.fits)
        return None if chosen is None else ([one.uid for one in chosen[0]], chosen[1])


def selecting(**labels: str) -> Selector:
    selector = canonical(LabelSelector(match_labels=labels))
    assert selector is not None
    return selector


def test_pods_are_put_back_while_the_new_one_fits() -> None:  # 2.7, reprieve
    pods = [victim("a", 10, 1, app="a"), victim("b", 5, 1), victim("c", 5, 2)]
    cpus = Cpus(8, 3, {"a": 4, "b": 2, "c": 2})
    assert cpus.choose(pods) == (["b", "c"], 0)
    assert cpus.free == 0  # all are back
    assert cpus.choose(pods, Budget("d", selecting(app="a"), 0)) == (["b", "c"], 0)


def test_a_pod_whose_budget_is_spent_is_put_back_first_and_counts_when_it_has_to_go() -> None:
    pods = [victim("a", 10), victim("b", 5, app="b")]
    spent = Budget("d", selecting(app="b"), 0)
    assert Cpus(4, 2, {"a": 2, "b": 2}).choose(pods, spent) == (["a"], 0)
    assert Cpus(4, 4, {"a": 2, "b": 2}).choose(pods, spent) == (["a", "b"], 1)
    in_work = Budget("d", selecting(app="b"), 0, frozenset(("b",)))
    assert Cpus(4, 2, {"a": 2, "b": 2}).choose(pods, in_work) == (["b"], 0)


def test_nobody_goes_when_that_is_not_enough() -> None:
    assert Cpus(4, 5, {"a": 2}).choose([victim("a", 1)]) is None
    assert Cpus(4, 5, {}).choose([]) is None


@pytest.mark.parametrize(("nodes", "enough"), [(50, 50), (2000, 200), (5, 5)], ids=["2.7 50", "2.7 2000", "few"])
def test_how_many_candidates_are_enough(nodes: int, enough: int) -> None:
    assert PreemptionArgs().candidates(nodes) == enough


@pytest.mark.parametrize(
    "args",
    [
        {"minCandidateNodesPercentage": 101},
        {"minCandidateNodesAbsolute": -1},
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        {"minCandidates": 5},
    ],
)
def test_bad_arguments_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(BadPreemptionArgs):
        read_preemption_args(args)


# in cycles


def world_of(*names: str) -> World:
    world = World()
    for name in names:
        world.add_node(node(name, labels={HOST: name}))
    return world


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def runs(name: str, on: str, cpu: str = "2", priority: int = 0, **more: Any) -> Pod:
    return pod(name, cpu=cpu, on=on, phase="Running", priority=priority, **more)


def evicted(records: Sequence[RecordedEvent]) -> list[str]:
    return [record.event.pod_uid for record in records if isinstance(record.event, EvictionRequested)]


def nominated(records: Sequence[RecordedEvent]) -> dict[str, str]:
    return {r.event.pod_uid: r.event.node for r in records if isinstance(r.event, PodNominated)}


def test_a_pod_of_higher_priority_gets_the_room_of_a_lower_one_once_that_is_gone() -> None:
    world = world_of("a", "b")
    add(world, runs("low", "a"), runs("mid", "a", priority=5), runs("high", "b", cpu="4", priority=200))
    add(world, pod("p", cpu="2", priority=100))
    records = world.cycle()
    assert placements(records) == {}
    assert (evicted(records), nominated(records)) == (["low"], {"p": "a"})
    status = next(r.event for r in records if isinstance(r.event, FieldsDesired))
    assert (status.resource, status.name, status.patch) == ("pods", "d/p", {"status": {"nominatedNodeName": "a"}})
    world.wait(2)
    assert world.cycle() == []
    world.drop_pod("low")
    world.read()
    assert placements(world.cycle()) == {"p": "a"}


def test_a_pod_requests_no_second_eviction_while_its_victim_terminates() -> None:
    world = world_of("a", "b")
    add(world, runs("x", "a", cpu="4"), runs("y", "b", cpu="4"), pod("p", cpu="2", priority=100))
    (first,) = evicted(world.cycle())
    leaving = runs(first, "a" if first == "x" else "b", cpu="4", deleting=True)
    add(world, leaving)
    for _ in range(3):
        world.wait(400)  # the flush lets it try whatever changed
        assert evicted(world.cycle()) == []


def test_after_a_refused_eviction_the_same_or_another_victim_is_chosen() -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="4"), pod("p", cpu="2", priority=100))
    records = world.cycle()
    eviction = next(record for record in records if isinstance(record.event, EvictionRequested))
    world.observe(EvictionRejected(pod="d/x", pod_uid="x", reason="budget"), Cause("scheduling", eviction.seq))
    world.read()
    world.wait(2)
    assert evicted(world.cycle()) == ["x"]


def refuse_eviction(world: World, records: Sequence[RecordedEvent], victim: str, *, gone: bool = False) -> None:
    """The eviction of a pod fails; with `gone`, its node takes the room for something that may not be evicted."""
    eviction = next(r for r in records if isinstance(r.event, EvictionRequested) and r.event.pod_uid == victim)
    world.observe(
        EvictionFailed(pod=f"d/{victim}", pod_uid=victim, reason="too old"), Cause("scheduling", eviction.seq)
    )
    if gone:
        add(world, runs(victim, "a", cpu="4", priority=1000))
    world.read()


def test_a_nomination_ends_once_its_victim_stays_and_no_other_eviction_helps() -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="3"), pod("p", cpu="2", priority=100))
    records = world.cycle()
    assert nominated(records) == {"p": "a"}
    refuse_eviction(world, records, "x", gone=True)
    world.wait(2)
    records = world.cycle()
    assert (nominated(records), evicted(records)) == ({"p": ""}, [])
    lost = next(record.event for record in records if isinstance(record.event, PodNominated))
    assert explain(records).summary == f"its nomination ended: {lost.reason}; it waits"
    patch = next(r.event.patch for r in records if isinstance(r.event, FieldsDesired))
    assert patch == {"status": {"nominatedNodeName": None}}
    world.wait(400)
    assert nominated(world.cycle()) == {}


def test_two_pods_of_equal_priority_do_not_keep_room_from_each_other_for_ever() -> None:
    """Each is nominated for the node, and fits beside what runs there, but not beside the other."""
    world = world_of("a")
    add(world, runs("x", "a", cpu="2"), runs("y", "a", cpu="2"))
    records = []
    for name in ("p", "q"):
        add(world, pod(name, cpu="2", priority=100))
        records += world.cycle()
        world.wait(0.6)  # they are never tried in one cycle
    assert nominated(records) == {"p": "a", "q": "a"}
    for victim in ("x", "y"):
        refuse_eviction(world, records, victim)
    world.drop_pod("x")
    add(world, runs("y", "a", cpu="2", priority=1000))
    found: dict[str, str] = {}
    for _ in range(40):
        found |= placements(world.cycle())
        world.wait(0.3)
    assert len(found) == 1


def test_room_that_was_made_is_kept_from_pods_of_equal_and_lower_priority() -> None:
    world = world_of("a")
    add(world, runs("low", "a", cpu="4"), pod("p", cpu="4", priority=100))
    assert evicted(world.cycle()) == ["low"]
    world.drop_pod("low")
    add(world, pod("thief", cpu="4", priority=100), pod("lesser", cpu="1", priority=1))
    assert placements(world.cycle()) == {}  # p waits for its backoff
    world.wait(2)
    assert placements(world.cycle()) == {"p": "a"}


def test_a_pod_of_higher_priority_still_may_take_room_that_was_made_for_a_lesser_one() -> None:
    world = world_of("a")
    add(world, runs("low", "a", cpu="4"), pod("p", cpu="4", priority=100))
    world.cycle()
    world.drop_pod("low")
    add(world, pod("urgent", cpu="4", priority=1000))
    assert placements(world.cycle()) == {"urgent": "a"}


def test_a_higher_nomination_ends_a_lower_one_on_its_node() -> None:
    world = world_of("a")
    add(world, runs("low", "a", cpu="4"), pod("p", cpu="4", priority=100))
    world.cycle()
    add(world, pod("urgent", cpu="4", priority=1000))
    records = world.cycle()
    assert nominated(records) == {"urgent": "a", "p": ""}
    assert evicted(records) == []  # the eviction of low is requested already


def test_two_pods_of_a_cycle_choose_different_victims() -> None:
    world = world_of("a", "b")
    add(world, runs("x", "a", cpu="4"), runs("y", "b", cpu="4"))
    add(world, pod("p", cpu="4", priority=100), pod("q", cpu="4", priority=100))
    records = world.cycle()
    assert sorted(evicted(records)) == ["x", "y"]
    assert sorted(nominated(records).values()) == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: msgspec.structs.replace(p, spec=msgspec.structs.replace(p.spec, preemption_policy="Never")), id="never"),
        pytest.param(lambda p: msgspec.structs.replace(p, spec=msgspec.structs.replace(p.spec, node_selector={"no": "where"})), id="unresolvable"),
        pytest.param(lambda p: msgspec.structs.replace(p, spec=msgspec.structs.replace(p.spec, priority=0)), id="equals"),
    ],
)  # fmt: skip
def test_a_pod_that_may_not_preempt_or_gains_nothing_evicts_no_pod(change: Any) -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="4"), change(pod("p", cpu="4", priority=100)))
    assert evicted(world.cycle()) == []


def test_a_budget_decides_between_two_nodes() -> None:
    world = world_of("a", "b")
    add(world, runs("x", "a", cpu="4", labels={"app": "x"}), runs("y", "b", cpu="4", priority=50))
    spec = {"selector": {"matchLabels": {"app": "x"}}}
    budget = {"metadata": {}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    world.observe(ObjectObserved(resource="poddisruptionbudgets.policy", name="d/b", uid="b", object=budget))
    add(world, pod("p", cpu="4", priority=100))
    assert evicted(world.cycle()) == ["y"]


def test_the_budgets_that_a_preemption_goes_beyond_are_named() -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="2", labels={"app": "x"}), runs("y", "a", cpu="2", labels={"app": "y"}))
    for name, allowed in (("x", 0), ("y", 1)):
        spec = {"selector": {"matchLabels": {"app": name}}}
        budget = {"metadata": {}, "spec": spec, "status": {"disruptionsAllowed": allowed}}
        key = f"d/budget-of-{name}"
        world.observe(ObjectObserved(resource="poddisruptionbudgets.policy", name=key, uid=key, object=budget))
    add(world, pod("p", cpu="4", priority=100))
    (record,) = [record for record in world.cycle() if isinstance(record.event, PodNominated)]
    assert isinstance(record.event, PodNominated)
    assert (record.event.violations, record.event.budgets) == (1, ("d/budget-of-x",))
    assert "; 1 of them beyond their disruption budgets (d/budget-of-x)" in explain([record]).summary


def test_pods_are_evicted_for_their_anti_affinity() -> None:
    world = world_of("a")
    term = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector(match_labels={"app": "web"}))
    shy = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    add(world, runs("shy", "a", cpu="1", affinity=shy), runs("other", "a", cpu="1"))
    add(world, pod("web", cpu="1", priority=100, labels={"app": "web"}))
    assert evicted(world.cycle()) == ["shy"]


def test_of_equal_victims_the_one_that_started_last_goes() -> None:
    world = world_of("a")
    for name, at in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-02-01T00:00:00Z")):
        running = runs(name, "a")
        world.add_pod(msgspec.structs.replace(running, status=msgspec.structs.replace(running.status, start_time=at)))
    add(world, pod("p", cpu="2", priority=100))
    assert evicted(world.cycle()) == ["new"]


def test_a_nomination_is_void_once_the_configuration_has_no_profile_of_the_pods_scheduler() -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="4"), pod("p", cpu="4", priority=100))
    world.cycle()
    world.drop_pod("x")
    use(world, DEFAULT_PROFILE.replace("koord-scheduler", "second"))
    world.cache = None
    add(world, pod("q", cpu="1", scheduler="second"))
    assert placements(world.cycle()) == {"q": "a"}


def test_requested_evictions_survive_a_snapshot() -> None:
    world = world_of("a")
    add(world, runs("x", "a", cpu="4"), pod("p", cpu="2", priority=100))
    world.cycle()
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()
    assert (restored.pods["p"].nominated, restored.pods["x"].is_eviction_requested()) == ("a", True)


def test_a_history_of_preemption_is_one_state_however_its_logs_interleave_and_decides_the_same_anew() -> None:
    world = world_of("a", "b")
    add(world, runs("x", "a", cpu="4"), runs("y", "b", cpu="4", priority=1), pod("p", cpu="2", priority=100))
    eviction = next(record for record in world.cycle() if isinstance(record.event, EvictionRequested))
    world.observe(EvictionRejected(pod="d/x", pod_uid="x", reason="budget"), Cause("scheduling", eviction.seq))
    world.read()
    world.wait(2)
    world.cycle()
    add(world, pod("urgent", cpu="4", priority=1000))
    world.cycle()
    world.drop_pod("x")
    world.read()
    world.wait(20)
    view = assert_one_state(world)
    anew = CycleInputs(view, config_of(view).profiles)
    decided = decide(world.indexed(), world.now_ns, 8)
    assert decided
    assert decide(anew, world.now_ns, 8) == decided


def test_a_preemption_is_explained_to_whom_it_serves_and_to_whom_it_costs() -> None:
    world = world_of("a", "b")
    add(world, runs("low", "a", cpu="2"), runs("lower", "a", priority=-5), runs("far", "b", cpu="4", priority=50))
    add(world, pod("p", cpu="4", priority=100))
    world.cycle()
    records = [record for log in world.logs.values() for record in log]
    of_p = explain([r for r in records if getattr(r.event, "pod_uid", "") == "p" or isinstance(r.event, CycleDecided)])
    assert (of_p.status, of_p.node) == ("nominated", "a")
    assert of_p.summary == (
        "cycle 1 evicts pods on a for it: d/low (priority 0), d/lower (priority -5); within every disruption budget"
        "; of 2 nodes where that helps, this one loses least"
    )
    of_low = explain([record for record in records if getattr(record.event, "pod_uid", "") == "low"])
    assert of_low.steps[-1].text == "its eviction is requested: preempted by d/p of priority 100 on node a"
    assert of_low.status == "bound"


def test_a_preemption_beyond_a_budget_is_explained_and_a_lost_nomination_too() -> None:
    event = PodNominated(pod_uid="p", pod="d/p", node="a", cycle=3, victims=("x",), violations=1, victim_pods=("d/x",), victim_priorities=(1,))  # fmt: skip
    assert explain([RecordedEvent("scheduling", 1, event, 0, None)]).summary == (
        "cycle 3 evicts pods on a for it: d/x (priority 1); 1 of them beyond their disruption budgets"
    )
    lost = PodNominated(pod_uid="p", pod="d/p", node="", cycle=4)
    explanation = explain(
        [RecordedEvent("scheduling", 1, event, 0, None), RecordedEvent("scheduling", 2, lost, 0, None)]
    )
    assert (explanation.status, explanation.node) == ("unschedulable", "")
