"""Steps of a cycle's transaction, undone: every array and every later decision is the same bit for bit."""

from collections.abc import Sequence
from itertools import takewhile
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.plugin_base import MAX_SCORE
from services.scheduler.framework.plugin_extension_points import on_all_rows
from services.scheduler.framework.plugin_spec import Normalize
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE, NO_NODE
from services.scheduler.plugins.default_preemption import preemption
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events import RecordedEvent
from shared.events.cluster import ObjectObserved
from shared.events.scheduling import PodNominated
from shared.kube.resource_names import NODE_TOPOLOGIES
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, placements, pod
from tests.unit.scheduler.all_plugin_worlds import RandomSteps, random_world
from tests.unit.scheduler.test_volumes import claim, storage_class, volume, with_claims, world_of

LARGE = 2_400
"""Number of nodes, of which kernels take several tiles."""

_SHARED = (
    "_plugin_cache",
    "_numa_cache",
    "_node_states",  # the same cache
    "_load_cache",
    "_storage",
    "_snapshot",
    "snapshot",
    "_args",
    "_plugin",
    "_strategies",
)
_DERIVED = (
    "_views",
    "_available",
    "_effects",
    "concerned",
    "_counting",
    "_rejections",
    "_requirements",
    "_results",
    "_limits",
    "_counters",
    "_changed",
    "_templates",
    "_without_terms",
)
_COUNTERS = ("revision", "_placed", "_matched_prediction", "_expected")
_SKIPPED = frozenset((*_SHARED, *_DERIVED, *_COUNTERS))


def stored(found: Any, seen: frozenset[int] = frozenset()) -> Any:
    """An object with everything that it refers to, in a form that can be compared; caches and counters left out."""
    if isinstance(found, np.ndarray):
        return found.shape, found.dtype.str, found.tobytes()
    if isinstance(found, dict):
        return {_key(key): stored(value, seen) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [stored(each, seen) for each in found]
    module = type(found).__module__
    if not module.startswith("services.scheduler.plugins") or id(found) in seen or isinstance(found, ModuleType):
        return found if isinstance(found, int | str | float | frozenset | None) else id(found)
    fields = dict(getattr(found, "__dict__", {}))
    fields |= {name: getattr(found, name) for name in getattr(type(found), "__slots__", ()) if hasattr(found, name)}
    inside = seen | {id(found)}
    compared = {name: stored(value, inside) for name, value in fields.items() if name not in _SKIPPED}
    if "_gone" in compared:  # allocations that were freed, in an order without effect
        compared["_gone"] = {row: sorted(there, key=repr) for row, there in compared["_gone"].items()}
    return compared


def _key(key: Any) -> Any:
    return key if isinstance(key, int | str | tuple) else id(key)


def arrays(transaction: CycleTransaction) -> dict[str, Any]:
    """Everything that the steps of a transaction change."""
    snapshot: CycleSnapshot = transaction.snapshot
    ports = {row: dict.fromkeys(sorted(there)) for row, there in snapshot.ports.items()}
    amounts = [stored(each) for each in (snapshot.requested, snapshot.nonzero_requested, snapshot.pods)]
    amounts += [stored(each) for each in (snapshot.allocatable, snapshot.allowed_pods)]
    moved = list(snapshot.pod_changes.changes)
    holds = snapshot.holds
    uses = {uid: (dict(holds.use_of(uid).amounts), holds.use_of(uid).owners) for uid in holds.table.capacities}
    amounts += [sorted(holds.lifted.items()), uses]
    states = {plugin.name: stored(state) for plugin, state in transaction.plugin_states.items()}
    return {"amounts": amounts, "ports": ports, "has ports": bool(snapshot.ports), "moved": moved, **states}


def decisions(evaluation: ClassEvaluation) -> tuple[Any, ...]:
    """Filter results, totals, and the record of a decision."""
    evaluation.catch_up()
    pod_hash = name_hash("pod")
    reasons = [
        None if by < 0 else evaluation.profile.filters[by].reasons(evaluation.pod_class, result)
        for by, result in zip(evaluation.by.tolist(), evaluation.result.tolist(), strict=True)
    ]
    record = evaluation.record(pod_hash)
    return evaluation.by.tolist(), reasons, evaluation.total.tolist(), record, evaluation.choose(pod_hash)


def choices(evaluation: ClassEvaluation) -> tuple[Any, ...]:
    """The part of an evaluation that is the same whether it followed the steps or is a fresh one.

    The reason of a node that stays rejected is that of its last evaluation: further placements may have added another
    one in front of it.
    """
    feasible = evaluation.feasible().tolist()
    return feasible, evaluation.total.tolist(), evaluation.candidates(feasible), evaluation.choose(name_hash("pod"))


def fresh(steps: RandomSteps, pod_class: PodClass) -> ClassEvaluation:
    """An evaluation that has followed no step."""
    transaction = steps.transaction
    transaction.focus(steps.profiles[pod_class], pod_class)
    active = ActivePlugins(steps.profiles[pod_class], transaction.plugin_states, transaction.snapshot)
    return ClassEvaluation(active, transaction.snapshot.table, pod_class)


def check_undo(seed: int, nodes: int, running: int, count: int) -> None:
    random = Random(seed)
    steps = RandomSteps(random_world(random, nodes, running, 40), random)
    steps.take(count)
    mark = steps.transaction.mark()
    decided = {each: decisions(fresh(steps, each)) for each in steps.classes}
    steps.transaction.undo(mark)  # which class was in focus last
    before = arrays(steps.transaction)
    steps.undone(count)
    after = arrays(steps.transaction)
    for part, value in before.items():
        if (
            isinstance(value, dict) and "_classes" in value
        ):  # classes that were counted for the first time since keep their counts
            after[part]["_classes"] = {each: after[part]["_classes"][each] for each in value["_classes"]}
        assert after[part] == value, part
    assert after.keys() == before.keys()
    for pod_class, expected in decided.items():
        assert decisions(fresh(steps, pod_class)) == expected
    for _ in range(2):
        for pod_class, evaluation in steps.evaluations.items():
            steps.transaction.focus(evaluation.profile, pod_class)
            evaluation.catch_up()
            assert choices(evaluation) == choices(fresh(steps, pod_class))
        steps.take(4)


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32))
@example(289)  # a node passes the filters, and its CPUs cannot be reserved
def test_steps_that_are_undone_leave_no_trace(seed: int) -> None:
    random = Random(seed)
    check_undo(seed, random.randrange(2, 14), random.randrange(0, 30), random.randrange(1, 14))


def test_steps_that_are_undone_leave_no_trace_on_many_nodes() -> None:
    check_undo(1, LARGE, 800, 20)


@pytest.mark.parametrize("nodes", [5, 40])
def test_what_is_tried_and_undone_before_an_evaluation_costs_it_nothing(nodes: int) -> None:
    random = Random(nodes)
    steps = RandomSteps(random_world(random, nodes, 20, 40), random)
    transaction, changes = steps.transaction, steps.transaction.changes
    evaluation = transaction.evaluation(steps.profiles[steps.classes[0]], steps.classes[0])
    row, assignment = steps.running[0]
    mark, before = transaction.mark(), list(changes.entries)
    transaction.remove(assignment, row)
    transaction.fits(evaluation.profile, evaluation.pod_class, row)
    assert len(changes.entries) == len(before) + 1
    transaction.undo(mark)
    assert changes.entries == before
    transaction.remove(assignment, row)
    evaluation.catch_up()
    transaction.undo(mark)
    assert [(each.row, each.releases) for each in changes.entries[len(before) :]] == [(row, True), (row, True)]


# a reference in plain Python, without kernels


def plain_results(transaction: CycleTransaction, profile: Profile, pod_class: PodClass) -> tuple[list[int], list[int]]:
    """The first filter that rejects each node, and the sums of the weighted scores, one node and plugin at a time."""
    transaction.focus(profile, pod_class)
    snapshot, states = transaction.snapshot, transaction.plugin_states
    by: list[int] = []
    for row in range(snapshot.size):
        if not snapshot.table.alive[row]:
            by.append(NO_NODE)
            continue
        results = [states[plugin].filter_at(pod_class, row) for plugin in profile.filters]
        by.append(next((index for index, result in enumerate(results) if result), FEASIBLE))
    feasible = [row for row, index in enumerate(by) if index == FEASIBLE]
    totals = [-1] * snapshot.size
    for row in feasible:
        totals[row] = 0
    for scorer in profile.scorers:
        plugin, state = scorer.plugin, states[scorer.plugin]
        if plugin.cross_node:
            found = state.scores(pod_class, np.array([index == FEASIBLE for index in by]))
            if found is not None:
                scores = on_all_rows(found, snapshot.size)
                for row in feasible:
                    totals[row] += int(scores[row]) * scorer.weight
            continue
        raw = {row: state.score_at(pod_class, row) for row in feasible}
        highest = max(raw.values(), default=0)
        for row, score in raw.items():
            totals[row] += plain_normalized(score, highest, plugin.normalize) * scorer.weight
    return by, totals


def plain_normalized(score: int, highest: int, how: Normalize) -> int:
    if how is Normalize.NONE:
        return score
    scaled = score * MAX_SCORE // highest if highest else 0
    return MAX_SCORE - scaled if how is Normalize.DOWN else scaled


def check_reference(seed: int, nodes: int, running: int, count: int) -> None:
    random = Random(seed)
    steps = RandomSteps(random_world(random, nodes, running, 40), random)
    for _ in range(2):
        steps.take(count)
        for pod_class in steps.classes:
            by, totals = plain_results(steps.transaction, steps.profiles[pod_class], pod_class)
            evaluation = fresh(steps, pod_class)
            assert evaluation.by.tolist() == by
            assert evaluation.total.tolist() == totals


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 2**32))
def test_kernels_decide_as_plain_python_does(seed: int) -> None:
    random = Random(seed)
    check_reference(seed, random.randrange(2, 14), random.randrange(0, 30), random.randrange(1, 10))


def test_kernels_decide_as_plain_python_does_on_many_nodes() -> None:
    check_reference(2, LARGE, 800, 10)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32))
@example(seed=823)  # more than MAX_PREEMPTORS pods of one cycle search for victims
@example(seed=41940)  # a pod is nominated for a node with NUMA zones
def test_pods_of_a_batch_go_where_cycles_of_one_pod_send_them(seed: int) -> None:
    """But for two things: the pods of a cycle that search for victims are limited, the others do so in the next one;
    and the CPUs and zone that are kept for a nominated pod are chosen anew in each cycle, so they may be others where
    pods were placed on its node meanwhile.
    """
    found = []
    with patch.object(preemption, "MAX_PREEMPTORS", 1000):
        for batch in (256, 1):
            random = Random(seed)
            nodes, running = random.randrange(2, 14), random.randrange(0, 30)
            world = random_world(random, nodes, running, 40)
            found.append(before_a_nomination_with_zones(world, world.cycles(batch, most=400)))
    assert found[0] == found[1]


def before_a_nomination_with_zones(world: World, decided: Sequence[RecordedEvent]) -> dict[str, str]:
    """Returns uid -> node of the pods that were placed before a pod was nominated for a node with NUMA zones."""
    observed = (record.event for record in world.logs["cluster"])
    zoned = {each.name for each in observed if isinstance(each, ObjectObserved) and each.resource == NODE_TOPOLOGIES}
    ordinary = takewhile(lambda each: not isinstance(each.event, PodNominated) or each.event.node not in zoned, decided)
    return placements(list(ordinary))


def test_volumes_that_a_preparation_took_are_free_again_once_it_is_undone() -> None:
    world = world_of("a", "b")
    storage_class(world, "wait", "kubernetes.io/no-provisioner")
    volume(world, "small", "a", storageClassName="wait")
    for name in ("c", "d"):
        claim(world, name, class_="wait")
        world.add_pod(with_claims(pod(name), name))
    world.read()
    cache = world.indexed()
    cache.settle()
    transaction = CycleTransaction(cache, world.now_ns)
    first, second = (each.pod_class for each in world.view.pods.values())
    assert first is not None
    assert second is not None
    profile = cache.profiles[first.scheduler]
    (plugin,), row = profile.pre_bind, cache.table.rows["a"]
    before = decisions(transaction.evaluation(profile, second))
    mark = transaction.mark()
    assert transaction.prepare(plugin, first, row) is not None
    other = CycleTransaction(cache, world.now_ns)
    assert other.prepare(plugin, first, row) is not None
    evaluation = other.evaluation(profile, second)
    assert not len(evaluation.feasible()), "the only volume is taken"
    other.undo(mark)
    transaction.undo(mark)
    evaluation.catch_up()
    for each in (evaluation, other.evaluation(profile, second), transaction.evaluation(profile, second)):
        assert decisions(each) == before
