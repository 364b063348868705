"""Properties of LoadAwareScheduling in every cluster: arrays equal scalars, and the order of updates does not matter."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.filter_and_score import LoadState
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import (
    Window,
    default_thresholds,
    node_thresholds,
    score_window,
)
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_node, estimate_pod, goround
from shared.domain.priority import Priority, priority
from shared.kube.instants import SECOND, duration_ns, instant_ns
from shared.kube.node import Node, NodeMetric, ResourceMap
from shared.kube.pod import Pod
from shared.kube.quantity import amounts
from tests.support.executed_lines import steps_of
from tests.support.hypothesis_examples import examples
from tests.unit.scheduler.load_aware_objects import (
    GIB,
    NOW,
    assign,
    expecting,
    metric,
    new_load_cache,
    node,
    reason_of,
    reported,
    usage,
)
from tests.unit.scheduler.load_aware_strategies import ROWS, World, pods, worlds


def filled(world: World) -> LoadCache:
    load_cache = new_load_cache(**world.args)
    for step in world.steps():
        step(load_cache)
    return load_cache


def evaluated(load_cache: LoadCache, incoming: Pod, rows: Any = None) -> tuple[list[str], list[int]]:
    state, rows = LoadState(load_cache), np.arange(ROWS) if rows is None else rows
    codes = state.filter(incoming, rows, NOW)
    return [reason_of(load_cache, code) for code in codes], state.score(incoming, rows, NOW).tolist()


def is_prod(pod: Pod) -> bool:
    return priority(pod) is Priority.PROD


def resources_of(usage: ResourceMap | None) -> dict[str, int]:
    return amounts(usage.resources or {}) if usage else {}


def scalar_load(
    args: LoadAwareArgs,
    report: NodeMetric,
    held: list[tuple[Pod, int]],
    name: str,
    *,
    prod: bool,
    window: Window | None,
) -> int:
    """Existing load of one resource, straight from spec/scheduler-core.md 3.4."""
    part, policy = report.status.node_metric, report.spec.metric_collect_policy
    updated = instant_ns(report.status.update_time) if report.status.update_time else -(2**62)
    interval = (
        60 if policy is None or policy.report_interval_seconds is None else policy.report_interval_seconds
    ) * SECOND
    system = resources_of(part.system_usage).get(name, 0) if part and args.prod_usage_include_sys else 0
    measured: int | None = resources_of(part.node_usage).get(name, 0) if part else None
    if window:
        windows = {duration_ns(w.duration): w.usage or {} for w in (part.aggregated_node_usages if part else ())}
        having = {length: kinds[window.type] for length, kinds in windows.items() if window.type in kinds}
        if (length := window.duration_ns or max(having, default=0)) in having:
            measured = resources_of(having[length]).get(name, 0)
        elif window.duration_ns:
            measured = None
    load, estimated, prod_load = 0, 0, system
    for pod, since in held:
        mine = next((p for p in report.status.pods_metric if p.name == pod.metadata.name), None)
        used = resources_of(mine.pod_usage).get(name, 0) if mine else None
        expected = estimate_pod(pod, args)
        as_prod = mine is not None and mine.priority == "koord-prod"
        if is_prod(pod) and as_prod:
            prod_load += used or 0
        if not any(expected.values()):
            continue
        after = args.estimated_seconds_after_pod_scheduled or 0
        recent = used is None or updated - interval < since or (after > 0 and since + after * SECOND > updated)
        load += max(0, expected[name] - (used or 0)) if recent else 0
        estimated += expected[name]
        if is_prod(pod) and used is not None and not as_prod:
            prod_load += max(0, expected[name])
        elif is_prod(pod) and recent:
            prod_load += max(0, expected[name] - (used or 0))
    if prod:
        return prod_load
    return estimated if measured is None else measured + load


def scalar_evaluation(
    args: LoadAwareArgs, node: Node, report: NodeMetric | None, held: list[tuple[Pod, int]], incoming: Pod
) -> tuple[str, int]:
    """Filter and score of one node, straight from spec/scheduler-core.md 3.5 and 3.6."""
    if report is None:
        return "", 0
    stamp = report.status.update_time
    expired = stamp is None or NOW - instant_ns(stamp) >= 180 * SECOND
    allocatable, expected, limits = (
        estimate_node(node),
        estimate_pod(incoming, args),
        node_thresholds(node, default_thresholds(args)),
    )
    prod = any(limits.prod.values()) and is_prod(incoming)
    percents = limits.prod if prod else limits.usage
    reason = ""
    if any(percents.values()) and expired and args.filter_expired_node_metrics:
        reason = "node(s) nodeMetric expired"
    elif report.status.node_metric is not None:
        words = "aggregated usage" if limits.window and not prod else "usage"
        for name in reversed(("cpu", "memory")):
            load = scalar_load(args, report, held, name, prod=prod, window=limits.window) + expected[name]
            share = goround(float(load) / float(allocatable[name]) * 100) if allocatable[name] else 0
            if percents.get(name) and allocatable[name] and share > percents[name]:
                reason = f"node(s) {name} {words} exceed threshold"
    if expired or report.status.node_metric is None:
        return reason, 0
    prod = bool(args.score_according_prod_usage) and is_prod(incoming)
    room = {}
    for name in ("cpu", "memory"):
        used = scalar_load(args, report, held, name, prod=prod, window=score_window(args)) + expected[name]
        room[name] = (allocatable[name] - used) * 100 // allocatable[name] if 0 < allocatable[name] >= used else 0
    weights, dominant = args.resource_weights, args.dominant_resource_weight
    total = sum(room[name] * weight for name, weight in weights.items()) + min(room.values()) * dominant
    return reason, total // (sum(weights.values()) + dominant)


@settings(max_examples=examples(150), deadline=None)
@given(worlds(), pods())
def test_arrays_have_the_results_of_the_scalar_reference(world: World, incoming: Pod) -> None:
    load_cache = filled(world)
    expected = []
    for row in range(ROWS):
        held = [(pod, since) for at, pod, since in world.placed.values() if at == row]
        expected.append(scalar_evaluation(load_cache.args, world.nodes[row], world.reports[row], held, incoming))
    assert list(zip(*evaluated(load_cache, incoming), strict=True)) == expected


@settings(max_examples=examples(60), deadline=None)
@given(worlds(), worlds(), pods(), st.randoms(use_true_random=False))
def test_neither_the_order_of_calls_nor_what_was_set_before_matters(
    world: World, before: World, incoming: Pod, random: Any
) -> None:
    load_cache = new_load_cache(**world.args)
    earlier, later = before.steps(), world.steps()
    random.shuffle(earlier)
    random.shuffle(later)
    for step in earlier:
        step(load_cache)
    for uid in sorted(before.placed.keys() - world.placed.keys()):
        load_cache.release(uid)
    for step in later:
        step(load_cache)
    straight = filled(world)
    assert evaluated(load_cache, incoming) == evaluated(straight, incoming)
    assert (load_cache.arrays.loads[:, :, :ROWS] == straight.arrays.loads[:, :, :ROWS]).all()


@settings(max_examples=examples(60), deadline=None)
@given(worlds(), pods())
def test_a_slice_of_rows_is_evaluated_as_an_array_and_changes_nothing(world: World, incoming: Pod) -> None:
    load_cache = filled(world)
    expected = evaluated(load_cache, incoming)
    assert (
        evaluated(load_cache, incoming, slice(0, ROWS)) == evaluated(load_cache, incoming, slice(0, ROWS)) == expected
    )
    assert evaluated(load_cache, incoming) == expected


@pytest.mark.parametrize("nodes", [50, 5000])
def test_evaluating_a_pod_takes_no_line_of_python_for_each_node(nodes: int) -> None:
    load_cache = new_load_cache(usageThresholds={"cpu": 65, "memory": 95})
    for row in range(nodes):
        load_cache.set_node(row, node())
        load_cache.set_metric(row, metric(usage(row * 15_000 // nodes, row * 1000), reported(f"p{row}", 100, GIB)))
        assign(load_cache, expecting(500, GIB, f"p{row}"), NOW, row)
    state, rows, incoming = LoadState(load_cache), np.arange(nodes), expecting(500, GIB, "incoming")

    def evaluate() -> None:
        state.filter(incoming, rows, NOW)
        state.score(incoming, rows, NOW)

    evaluate()  # what is worked out once is
    assert (state.filter(incoming, rows, NOW) != 0).any()
    assert state.score(incoming, rows, NOW).max() > 0  # a fleet on which nothing fits would show nothing
    _, steps = steps_of(evaluate)
    assert steps < 100
