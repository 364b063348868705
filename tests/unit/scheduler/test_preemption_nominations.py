"""Several preemptors of one cycle: no victim is chosen twice, and each choice draws disruption budgets down for the next."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.scheduler.cache.disruption_budgets import Budget, Victim, drawn_down, overdrawn
from services.scheduler.explain.explain_pod import explain
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.label_selectors import canonical
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import EvictionRejected, ObjectObserved
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodNominated
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from shared.kube.selectors import LabelSelector
from tests.support.scheduling_world import World, node, placements, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


def world_of(*names: str, cpu: str = "4") -> World:
    world = World()
    for name in names:
        world.add_node(node(name, cpu=cpu, labels={"kubernetes.io/hostname": name}))
    return world


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def runs(name: str, on: str, cpu: str = "4", priority: int = 0, **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, on=on, phase="Running", priority=priority, **more)


def urgent(name: str, cpu: str = "4", priority: int = 100, **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, priority=priority, **more)


def budget(app: str, allowed: int, disrupted: Sequence[str] = ()) -> Event:
    """A PodDisruptionBudget of the pods with the label app."""
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")}
    body = {"metadata": {}, "spec": {"selector": {"matchLabels": {"app": app}}}, "status": status}
    return ObjectObserved(resource="poddisruptionbudgets.policy", name=f"d/{app}", uid=app, object=body)


def evicted(records: Sequence[RecordedEvent]) -> list[str]:
    return sorted(record.event.pod_uid for record in records if isinstance(record.event, EvictionRequested))


def nominations(records: Sequence[RecordedEvent]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(uid, node, victims) as they are recorded."""
    found = [record.event for record in records if isinstance(record.event, PodNominated)]
    return [(event.pod_uid, event.node, event.victims) for event in found]


# budgets


def test_an_eviction_draws_down_the_budgets_that_select_the_pod_and_no_others() -> None:
    def selecting(namespace: str, app: str, allowed: int, disrupted: frozenset[str] = frozenset()) -> Budget:
        selector = canonical(LabelSelector(match_labels={"app": app}))
        assert selector is not None
        return Budget(namespace, selector, allowed, disrupted, f"{namespace}/{app}")

    gone, next_ = (Victim(name, f"d/{name}", {"app": "x"}, 0, 1) for name in ("gone", "next"))
    ours, theirs, other_node = selecting("d", "x", 1), selecting("d", "y", 1), selecting("other", "x", 1)
    counted = selecting("d", "x", 1, frozenset({"gone"}))
    before = (ours, theirs, other_node, counted)
    after = drawn_down(before, [gone])
    assert [each.allowed for each in after] == [0, 1, 1, 1]
    assert overdrawn([next_], after) == {"next": ("d/x",)}
    assert overdrawn([gone], after) == {}, "its own disruption is counted already"
    assert drawn_down(after, [gone]) == after


# DefaultPreemption


def two_victims_on_one_node() -> World:
    world = world_of("a")
    add(world, runs("x", "a", "2"), runs("y", "a", "2"), urgent("p", "2"), urgent("q", "2"))
    return world


def one_victim_for_two() -> World:
    world = world_of("a")
    add(world, runs("x", "a"), urgent("p", "2"), urgent("q", "2"))
    return world


def one_disruption_allowed() -> World:
    world = world_of("a", "b", "c")
    add(world, runs("x", "a", labels={"app": "db"}), runs("y", "b", labels={"app": "db"}), runs("z", "c", priority=50))
    world.observe(budget("db", 1))
    add(world, urgent("p"), urgent("q"))
    return world


def one_nomination_lost() -> World:
    world = world_of("a")
    add(world, runs("x", "a", "2"), runs("y", "a", "2"), urgent("lesser", "4", priority=50))
    world.cycle()
    add(world, urgent("p", "2"), urgent("q", "2"))
    return world


def one_nomination_lost_in_its_own_turn() -> World:
    """The pod whose nomination ends comes later in the same cycle, and finds another node."""
    world = world_of("a")
    add(world, runs("x", "a"), urgent("lesser", "4", priority=50))
    world.cycle()
    world.add_node(node("b", labels={"kubernetes.io/hostname": "b"}))
    world.wait(400)
    add(world, runs("y", "b"), urgent("p", "4", selector={"kubernetes.io/hostname": "a"}))
    return world


def test_a_victim_of_the_first_preemptor_is_no_victim_of_the_second() -> None:
    records = two_victims_on_one_node().cycle()
    assert evicted(records) == ["x", "y"]
    (first, _, victims), (second, _, others) = nominations(records)
    assert (first, second, sorted(victims + others)) == ("p", "q", ["x", "y"])


def test_a_pod_that_fits_beside_the_first_preemptor_evicts_nobody() -> None:
    world = one_victim_for_two()
    records = world.cycle()
    assert evicted(records) == ["x"]
    assert nominations(records) == [("p", "a", ("x",)), ("q", "a", ())]
    world.drop_pod("x")
    world.read()
    world.wait(20)
    assert placements(world.cycles()) == {"p": "a", "q": "a"}


def test_what_the_first_preemptor_takes_up_is_not_there_for_the_second() -> None:
    world = world_of("a")
    add(world, runs("x", "a"), urgent("p", "3"), urgent("q", "2"))
    records = world.cycle()
    assert evicted(records) == ["x"]
    assert len(nominations(records)) == 1, "beside the nominated pod there is no capacity for the other"


def test_a_budget_is_drawn_down_between_two_preemptors() -> None:
    records = one_disruption_allowed().cycle()
    first, second = evicted(records)
    assert (first in ("x", "y"), second) == (True, "z")
    events = [record.event for record in records if isinstance(record.event, PodNominated)]
    assert [event.violations for event in events] == [0, 0]


def test_a_budget_that_another_preemptor_used_up_is_recorded_as_violated() -> None:
    world = world_of("a", "b")
    add(world, runs("x", "a", labels={"app": "db"}), runs("y", "b", labels={"app": "db"}))
    world.observe(budget("db", 1))
    add(world, urgent("p"), urgent("q"))
    events = [record.event for record in world.cycle() if isinstance(record.event, PodNominated)]
    assert [(event.violations, event.budgets) for event in events] == [(0, ()), (1, ("d/db",))]


@pytest.mark.parametrize(
    "world",
    [
        two_victims_on_one_node,
        one_victim_for_two,
        one_disruption_allowed,
        one_nomination_lost,
        one_nomination_lost_in_its_own_turn,
    ],
    ids=lambda world: world.__name__,
)
def test_cycles_of_one_pod_choose_the_victims_that_one_cycle_of_all_chooses(world: Callable[[], World]) -> None:
    together, alone = world().cycles(256), world().cycles(1)
    assert (evicted(alone), nominations(alone)) == (evicted(together), nominations(together))


def test_a_nomination_is_lost_once_however_many_preemptors_take_its_node() -> None:
    records = one_nomination_lost().cycle()
    assert nominations(records).count(("lesser", "", ())) == 1


def test_a_pod_that_loses_its_nomination_looks_for_another_node_in_the_same_cycle() -> None:
    records = one_nomination_lost_in_its_own_turn().cycle()
    assert nominations(records) == [("p", "a", ()), ("lesser", "", ()), ("lesser", "b", ("y",))]


def test_a_victim_counts_against_its_budget_until_the_budget_records_it_and_not_after() -> None:
    def after(*observed: Event) -> list[str]:
        world = world_of("a", "c")
        add(world, runs("x", "a", labels={"app": "db"}), runs("z", "c", priority=50))
        world.observe(budget("db", 1))
        add(world, urgent("p"))
        assert evicted(world.cycle()) == ["x"]
        world.add_node(node("b", labels={"kubernetes.io/hostname": "b"}))
        add(world, runs("y", "b", labels={"app": "db"}), urgent("q"))
        for event in observed:
            world.observe(event)
        world.read()
        return evicted(world.cycle())

    assert after() == ["z"], "the eviction is on its way: the one disruption that is allowed is used up"
    assert after(budget("db", 1, ["x"])) == ["y"], "the budget has recorded it, and allows one more"


def test_a_victim_that_stays_may_be_chosen_again() -> None:
    world = two_victims_on_one_node()
    records = world.cycle()
    refused, carried_out = (record for record in records if isinstance(record.event, EvictionRequested))
    (stays, goes) = evicted([refused]) + evicted([carried_out])
    world.observe(EvictionRejected(pod=f"d/{stays}", pod_uid=stays, reason="budget"), Cause("scheduling", refused.seq))
    world.drop_pod(goes)
    world.read()
    world.wait(20)
    again = world.cycles()
    assert (len(placements(again)), evicted(again)) == (1, [stays])


def test_victims_are_sought_again_once_the_last_pod_has_left_without_making_room() -> None:
    world = world_of("a")
    add(world, runs("x", "a"), runs("leaves", "a", "0"), urgent("p"))
    refused = next(record for record in world.cycle() if isinstance(record.event, EvictionRequested))
    add(world, runs("leaves", "a", "0", deleting=True))
    world.observe(EvictionRejected(pod="d/x", pod_uid="x", reason="budget"), Cause("scheduling", refused.seq))
    world.read()
    world.wait(20)
    assert evicted(world.cycles()) == [], "a pod of lower priority leaves the node: it may make room"
    world.wait(20)
    assert evicted(world.cycles()) == []
    world.drop_pod("leaves")
    world.read()
    assert evicted(world.cycles()) == ["x"], "it has made none; nothing that is kept for a pod is kept for ever"


def test_the_pods_of_a_nominated_pod_s_node_are_examined_only_after_one_has_left_it() -> None:
    class Counted(dict[str, Assignment]):
        examined = 0

        def items(self) -> Any:
            self.examined += 1
            return super().items()

    world = world_of("a", "b")
    add(world, runs("x", "a"), runs("y", "b", priority=200), urgent("p"))
    assert evicted(world.cycle()) == ["x"]
    world.read()
    cache = world.indexed()
    row = cache.table.rows["a"]
    there = cache.on[row] = Counted(cache.on[row])
    add(world, runs("other", "b", "0", priority=200))
    cache.settle()
    assert there.examined == 0
    add(world, runs("gone", "a", "0"))
    world.drop_pod("gone")
    world.read()
    cache.settle()
    assert there.examined > 0


def test_a_nomination_without_victims_of_its_own_is_explained() -> None:
    world = one_victim_for_two()
    world.cycle()
    records = [record for record in world.logs["scheduling"] if getattr(record.event, "pod_uid", "") == "q"]
    assert explain(records).summary == (
        "cycle 1 keeps capacity for it on a: pods that are terminating free enough; no other pod is evicted"
    )


# both preemptions

N0, N1 = ({"kubernetes.io/hostname": name} for name in ("n0", "n1"))


def of(team: str, name: str, cpu: str, priority: int, on: str = "", **more: Any) -> Pod:
    labels = {QUOTA_NAME: team, **more.pop("labels", {})}
    phase = "Running" if on else "Pending"
    return pod(name, cpu=cpu, memory=None, priority=priority, on=on, phase=phase, labels=labels, **more)


def teams(*quotas: Event) -> Teams:
    """Two nodes of 4 and of 64 cores; the quotas are full once their pods run."""
    world = Teams(*quotas, nodes=0)
    for name, cpu in (("n0", "4"), ("n1", "64")):
        world.add_node(node(name, cpu=cpu, memory="64Gi", labels={"kubernetes.io/hostname": name}))
    world.read()
    return world


def test_a_quotas_preemption_leaves_alone_what_the_nodes_preemption_of_the_cycle_evicts() -> None:
    world = teams(quota("a", "6", "6"))
    add(world, of("a", "x", "4", 0, "n0"), of("a", "w", "2", 1, "n1"))
    add(world, urgent("p", selector=N0), of("a", "r", "2", 50, selector=N1))
    records = world.cycle()
    assert evicted(records) == ["x"]
    assert nominations(records) == [("p", "n0", ("x",))], (
        "x frees enough in the quota: r waits for that, and nobody else goes"
    )


def test_quota_that_a_victim_frees_is_counted_for_the_pod_that_was_nominated() -> None:
    world = teams(quota("a", "6", "6"))
    add(world, of("a", "x", "4", 0, "n0"), of("a", "w", "2", 1, "n1"))
    add(world, of("a", "p", "4", 100, selector=N0), of("a", "r", "2", 50, selector=N1))
    assert nominations(world.cycle()) == [("p", "n0", ("x",)), ("r", "n1", ("w",))]


def test_the_second_preemptor_of_a_quota_does_not_rest_on_what_the_first_one_frees_in_it() -> None:
    world = teams(quota("a", "6", "6"))
    add(world, of("a", "x", "2", 0, "n0"), of("a", "y", "2", 1, "n0"), of("a", "w", "2", 2, "n1"))
    add(world, of("a", "p", "2", 100, selector=N0), of("a", "q", "2", 90, selector=N0))
    assert nominations(world.cycle()) == [("p", "n0", ("x",)), ("q", "n0", ("y",))]


def test_a_pod_whose_quota_gets_enough_from_victims_of_the_cycle_evicts_nobody() -> None:
    world = teams(quota("a", "6", "6"))
    add(world, of("a", "y", "2", 1, "n1"), of("a", "x", "4", 0, "n0"))
    add(world, of("a", "p", "2", 100, selector=N0), of("a", "q", "2", 90, selector=N0))
    assert nominations(world.cycle()) == [("p", "n0", ("x",)), ("q", "n0", ())]


def test_a_quotas_preemption_finds_budgets_drawn_down_by_the_nodes_preemption() -> None:
    world = teams(quota("b", "4", "4"))
    world.observe(budget("db", 1))
    add(world, runs("x", "n0", labels={"app": "db"}))
    add(world, of("b", "u", "2", 0, "n1", labels={"app": "db"}), of("b", "v", "2", 5, "n1"))
    add(world, urgent("p", selector=N0), of("b", "r", "2", 50, selector=N1))
    assert evicted(world.cycle()) == ["v", "x"]


def test_budgets_are_drawn_down_from_quota_to_quota() -> None:
    world = teams(quota("a", "4", "4"), quota("b", "4", "4"))
    world.observe(budget("db", 1))
    for team in ("a", "b"):
        add(world, of(team, f"u{team}", "2", 0, "n1", labels={"app": "db"}), of(team, f"v{team}", "2", 5, "n1"))
    add(world, of("a", "ra", "2", 60, selector=N1), of("b", "rb", "2", 50, selector=N1))
    records = world.cycle()
    assert nominations(records) == [("ra", "n1", ("ua",)), ("rb", "n1", ("vb",))]
