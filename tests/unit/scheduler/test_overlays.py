"""Overlays of a transaction: nodes with other capacity decide as nodes whose allocatable has really changed."""

from collections.abc import Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.transaction import CycleTransaction, UnknownResource
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.node import RAW_ALLOCATABLE, Node
from shared.kube.pod import Pod
from shared.kube.quantity import amount, nanos
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import NUMA_LABEL, bound_pod, machine, reported
from tests.support.scheduling_world import GIB, World, metric, node, pod, thresholds, use
from tests.unit.scheduler.all_plugin_worlds import GPU, random_overlay, random_world
from tests.unit.scheduler.test_cycle_transaction import LARGE, decisions, plain_results

Overlay = tuple[Sequence[int], Mapping[str, Sequence[int]]]


def changed(node: Node, deltas: Mapping[str, int]) -> Node:
    """The node with other allocatable amounts."""
    allocatable = dict(node.status.allocatable or {})
    for name, delta in deltas.items():
        size = max(amount(name, nanos(allocatable.get(name, "0"))) + delta, 0)
        allocatable[name] = f"{size}m" if name == "cpu" else str(size)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=allocatable))


def change_nodes(world: World, overlay: Overlay) -> None:
    """Really changes the allocatable of nodes."""
    rows, deltas = overlay
    names = world.indexed().table.names
    for place, row in enumerate(rows):
        before = world.view.nodes[names[row]].node
        world.add_node(changed(before, {name: sizes[place] for name, sizes in deltas.items()}))
    world.read()


class Evaluated:
    """A transaction on a world, with an evaluation for each class of waiting pods."""

    def __init__(self, world: World) -> None:
        world.read()
        self.cache = world.indexed()
        self.cache.settle()
        self.transaction = CycleTransaction(self.cache, world.now_ns)
        self.waiting = [each for each in world.view.pods.values() if not each.node and each.pod_class]
        firsts = {each.pod_class: each for each in self.waiting}
        self.evaluations = {each.name: self.fresh(each) for each in firsts.values()}
        for evaluation in list(self.evaluations.values())[::2]:
            evaluation.look_ahead(self.transaction.snapshot)

    def fresh(self, waiting: PodRecord) -> ClassEvaluation:
        """A new evaluation of a pod's class."""
        assert waiting.pod_class is not None
        return self.transaction.evaluation(self.cache.profiles[waiting.pod_class.scheduler], waiting.pod_class)

    def decisions(self) -> dict[str, object]:
        """The decisions of the evaluations that have followed all steps."""
        found: dict[str, object] = {}
        for name, evaluation in self.evaluations.items():
            self.transaction.focus(evaluation.profile, evaluation.pod_class)
            found[name] = decisions(evaluation)
        return found

    def place(self, waiting: PodRecord) -> int:
        """Places a pod on its best node; -1 without one."""
        assert waiting.pod_class is not None
        evaluation = self.evaluations.setdefault(waiting.name, self.fresh(waiting))
        self.transaction.focus(evaluation.profile, evaluation.pod_class)
        evaluation.catch_up()
        row = evaluation.choose(name_hash(waiting.name))
        allocation = self.transaction.reserve(evaluation, row) if row >= 0 else None
        if allocation is not None:
            self.transaction.place(waiting, waiting.pod_class, row, allocation)
        return row

    def check_reference(self) -> None:
        """Compares fresh evaluations by kernels with plain Python."""
        for evaluation in self.evaluations.values():
            self.transaction.focus(evaluation.profile, evaluation.pod_class)
            by, totals = plain_results(self.transaction, evaluation.profile, evaluation.pod_class)
            again = self.transaction.evaluation(evaluation.profile, evaluation.pod_class)
            assert (again.by.tolist(), again.total.tolist()) == (by, totals)


def check_overlays(seed: int, nodes: int, running: int) -> None:
    """Compares overlays with changed nodes: evaluations that followed them and fresh ones, and placements after them."""
    random, world, other = Random(seed), *(random_world(Random(seed), nodes, running, 20) for _ in range(2))
    overlays = [random_overlay(random, nodes) for _ in range(3)]
    cycle = Evaluated(world)
    before, mark = cycle.decisions(), cycle.transaction.mark()
    for overlay in overlays:
        cycle.transaction.overlay(*overlay)
        other.indexed().settle()
        change_nodes(other, overlay)
    really = Evaluated(other)
    assert cycle.decisions() == really.decisions()
    cycle.check_reference()
    for one, two in zip(cycle.waiting, really.waiting, strict=True):
        assert cycle.place(one) == really.place(two)
    cycle.transaction.undo(mark)
    assert {name: found for name, found in cycle.decisions().items() if name in before} == before
    assert Evaluated(world).decisions() == before, "no later cycle has the overlays"


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 2**32))
def test_an_overlay_decides_as_nodes_with_other_allocatable_do(seed: int) -> None:
    random = Random(seed)
    check_overlays(seed, random.randrange(2, 14), random.randrange(0, 30))


def test_an_overlay_decides_as_nodes_with_other_allocatable_do_on_many_nodes() -> None:
    check_overlays(3, LARGE, 800)


def nodes_with(waiting: Pod, *nodes: Node) -> Evaluated:
    world = World()
    use(world, thresholds(45, 95))
    for each in nodes:
        world.add_node(each)
    world.add_pod(waiting)
    return Evaluated(world)


def evaluated(cycle: Evaluated) -> tuple[int, dict[str, int]]:
    """The total of the first node, and the share of each plugin; -1 where it is rejected."""
    (evaluation,) = cycle.evaluations.values()
    evaluation.catch_up()
    total = int(evaluation.total[0])
    return total, dict(evaluation.candidates([0])[0].plugin_scores) if total >= 0 else {}


def test_capacity_is_added_and_taken_away_and_the_fit_filter_follows() -> None:
    cycle = nodes_with(pod("p", cpu="3"), node("a", cpu="2"))
    assert evaluated(cycle) == (-1, {})
    mark = cycle.transaction.mark()
    cycle.transaction.overlay([0], {"cpu": [4000]})
    assert evaluated(cycle)[1]["NodeResourcesFit"] == (50 + 93) // 2
    cycle.transaction.overlay([0], {"pods": [-110]})
    assert evaluated(cycle) == (-1, {})
    cycle.transaction.undo(mark)
    assert evaluated(cycle) == (-1, {})
    assert cycle.cache.table.allocatable[0, 0] == 2000


def test_no_amount_falls_below_zero() -> None:
    cycle = nodes_with(pod("p", cpu="1"), node("a", cpu="2"))
    cycle.transaction.overlay([0], {"cpu": [-3000]})
    cycle.transaction.overlay([0], {"cpu": [1000]})
    assert evaluated(cycle)[0] >= 0


@pytest.mark.parametrize(("raw", "admits"), [(False, True), (True, False)])
def test_load_is_compared_with_the_capacity_of_the_overlay_unless_the_node_has_a_raw_amount(
    raw: bool, admits: bool
) -> None:
    world = World()
    use(world, thresholds(45, 95))
    annotations = {RAW_ALLOCATABLE: '{"cpu": "4"}'} if raw else {}
    world.add_node(node("a", cpu="4", annotations=annotations))
    world.report(metric("a", cpu="2000m", memory=str(GIB)))
    world.add_pod(pod("p", cpu="500m"))
    cycle = Evaluated(world)
    (evaluation,) = cycle.evaluations.values()
    assert [reason.code for reason in evaluation.refusals(0)] == ["UsageExceedsThreshold"]
    cycle.transaction.overlay([0], {"cpu": [4000]})
    assert (evaluated(cycle)[0] >= 0) is admits


def test_a_limit_applies_once_an_overlay_adds_the_resource_to_the_node() -> None:
    world = World()
    use(world, thresholds(45, 95))
    world.add_node(node("a", cpu="0"))
    world.report(metric("a", cpu="2000m", memory=str(GIB)))
    world.add_pod(pod("p", cpu=None))
    cycle = Evaluated(world)
    assert evaluated(cycle)[0] >= 0
    cycle.transaction.overlay([0], {"cpu": [3000]})
    (evaluation,) = cycle.evaluations.values()
    evaluation.catch_up()
    assert [reason.code for reason in evaluation.refusals(0)] == ["UsageExceedsThreshold"]


def test_a_numa_node_scores_by_the_capacity_of_the_overlay_and_keeps_its_zones() -> None:
    world = World()
    world.observe(reported("a"))
    world.add_node(machine("a", labels={NUMA_LABEL: "SingleNUMANode"}))
    world.observe(reported("b"))
    world.add_node(machine("b"))
    world.add_pod(bound_pod("p", 4))
    cycle = Evaluated(world)
    (evaluation,) = cycle.evaluations.values()
    before = [each.plugin_scores["NodeNUMAResource"] for each in evaluation.candidates([0, 1])]
    cycle.transaction.overlay([0, 1], {"cpu": [8000, 8000]})
    evaluation.catch_up()
    after = [each.plugin_scores["NodeNUMAResource"] for each in evaluation.candidates([0, 1])]
    assert after[0] == before[0], "its zones are reported apart from allocatable"
    assert after[1] > before[1]


def test_a_scarce_resource_that_an_overlay_takes_away_no_longer_keeps_pods_off() -> None:
    cycle = Evaluated(random_world(Random(0), 3, 0, 20))
    name, evaluation = next(
        (name, each)
        for name, each in cycle.evaluations.items()
        if GPU not in each.pod_class.request and each.by[0] == -1
    )
    before = evaluation.candidates([0])[0].plugin_scores["ScarceResourceAvoidance"]
    cycle.transaction.overlay([0], {GPU: [-3]})
    evaluation.catch_up()
    after = evaluation.candidates([0])[0].plugin_scores["ScarceResourceAvoidance"]
    assert before < after == 100, name


def test_a_resource_that_nothing_has_is_an_error() -> None:
    cycle = nodes_with(pod("p"), node("a"))
    with pytest.raises(UnknownResource, match=r"example\.com/x"):
        cycle.transaction.overlay([0], {"example.com/x": [1]})
