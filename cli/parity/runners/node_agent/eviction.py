"""Runs evictions by cpu and memory: rounds with a store of metrics each, and an executor that may refuse."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cli.parity.runners.node_agent.metric_store import Store
from services.node_agent.qos_manager.strategies import cpu_evict
from services.node_agent.qos_manager.strategies.cpu_evict import BestEffort, Window
from services.node_agent.qos_manager.strategies.evict_until_released import Amounts, Candidate, Outcome, Task
from services.node_agent.qos_manager.strategies.eviction_strategies import (
    Load,
    Outcomes,
    Strategies,
    cpu_strategies,
    memory_strategies,
    reason,
)
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold

Given = Mapping[str, Any]
Changed = Callable[[Outcomes, Node], Outcomes]

OPS = frozenset({"cpuEvict", "memoryEvict"})


def evictions(op: str, given: Given) -> dict[str, Any]:
    """Runs op `cpuEvict` or `memoryEvict`."""
    return {"rounds": [each for each, _ in _rounds(op, given, lambda outcomes, _: outcomes)]}


def upstreams(op: str, given: Given) -> dict[str, Any]:
    """Runs the cases as upstream does.

    No eviction releases native `cpu` or `memory`, and cpu of a node that has some counts 1000 times.
    """
    return {"rounds": [each for each, _ in _rounds(op, given, _as_upstream)]}


def native_is_short(op: str, given: Given) -> bool:
    """Reports whether pods request more cpu or memory as such than the node has, in one of the rounds."""
    return op in OPS and any(
        {"cpu", "memory"} & outcome.release.keys()
        for _, outcomes in _rounds(op, given, _as_upstream)
        for feature, outcome in outcomes.items()
        if feature.endswith("AllocatableEvict") and isinstance(outcome, Task)
    )


def _rounds(op: str, given: Given, changed: Changed) -> list[tuple[dict[str, Any], Outcomes]]:
    strategies = cpu_strategies(instant_ns(given["startTime"])) if op == "cpuEvict" else memory_strategies()
    node = msgspec.convert(given["node"], Node)
    pods = [msgspec.convert(pod, Pod) for pod in given["pods"]]
    evicted: set[str] = set()
    rounds = []
    for now in given["rounds"]:
        result, outcomes = _round(strategies, given, now, node, pods, evicted, changed)
        rounds.append((result, outcomes))
        if given.get("removeEvicted"):
            pods = [pod for pod in pods if pod.metadata.uid not in evicted]
    return rounds


def _round(
    strategies: Strategies,
    given: Given,
    now: Given,
    node: Node,
    pods: list[Pod],
    evicted: set[str],
    changed: Changed,
) -> tuple[dict[str, Any], Outcomes]:
    now_ns = instant_ns(now["time"])
    cooling, threshold = strategies.is_cooling(now_ns), _threshold(now["threshold"])
    outcomes: Outcomes = {}
    if not cooling and threshold is not None:
        load = _load(given, now, pods, threshold, now_ns)
        outcomes = changed(strategies.outcomes(given["gates"], threshold, node, pods, load), node)
    done = strategies.carry_out(
        outcomes,
        lambda pod, _: pod.metadata.name not in given["evictReject"],
        lambda pod: pod.metadata.uid in evicted,
        now_ns,
    )
    evicted |= {each.pod.metadata.uid for each in done if each.done}
    last_ns = strategies.evicted_ns
    result = {
        "cooling": cooling,
        "tasks": {feature: _outcome(outcome) for feature, outcome in outcomes.items()},
        "evictions": [
            {
                "pod": each.pod.metadata.name,
                "reason": "evicted",
                "message": f"{reason(each.feature)}, kill pod: {each.pod.metadata.name}",
                "success": each.done,
            }
            for each in done
        ],
        "lastEvictTime": None if last_ns is None else instant_text(last_ns),
    }
    return result, outcomes


def _threshold(raw: Given | None) -> ResourceThreshold | None:
    """Returns a threshold that may lie outside of the bounds that the webhook enforces."""
    if raw is None:
        return None
    names = {field.encode_name: field.name for field in msgspec.structs.fields(ResourceThreshold)}
    return ResourceThreshold(**{names[name]: value for name, value in raw.items()})


def _load(given: Given, now: Given, pods: list[Pod], threshold: ResourceThreshold, now_ns: int) -> Load:
    store, interval_s = Store(now["series"]), given["collectIntervalSeconds"]
    latest_ns = now_ns - 2 * interval_s * SECOND
    begin_ns = now_ns - cpu_evict.window_s(threshold, interval_s) * SECOND

    def last(metric: str) -> dict[str, float]:
        found = {uid: store.last(metric, latest_ns, now_ns, pod_uid=uid) for uid in (pod.metadata.uid for pod in pods)}
        return {uid: value for uid, value in found.items() if value is not None}

    def best_effort(since_ns: int) -> list[list[float]]:
        labels = [
            {"be_resource": "cpu", "be_allocation": allocation} for allocation in ("usage", "request", "real-limit")
        ]
        return [store.within("node_be", since_ns, now_ns, **each) for each in labels]

    means, newest = best_effort(begin_ns), best_effort(latest_ns)
    return Load(
        Window(
            BestEffort(*(sum(values) / len(values) for values in means)) if all(means) else None,
            min(map(len, means)),
            store.mean("node_cpu_usage", begin_ns, now_ns),
        ),
        BestEffort(*(values[-1] for values in newest)) if all(newest) else None,
        store.last("node_memory_usage", latest_ns, now_ns),
        last("pod_cpu_usage"),
        last("pod_memory_usage"),
        interval_s,
    )


def _as_upstream(outcomes: Outcomes, node: Node) -> Outcomes:
    return {
        feature: _without_native(outcome, node)
        if feature.endswith("AllocatableEvict") and isinstance(outcome, Task)
        else outcome
        for feature, outcome in outcomes.items()
    }


def _without_native(task: Task, node: Node) -> Task:
    scale = 1000 if (node.status.allocatable or {}).get("cpu") else 1

    def part(each: Candidate) -> Amounts:
        return {name: size for name, size in task.part(each).items() if name not in {"cpu", "memory"}}

    release = {name: size * scale if name == "cpu" else size for name, size in task.release.items()}
    return task._replace(release=release, part=part)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    if not isinstance(outcome, Task):
        return {"state": outcome.value}
    return {
        "state": "task",
        "release": dict(outcome.release),
        "releaseKind": outcome.kind.value,
        "candidates": [each.pod.metadata.name for each in outcome.candidates],
    }
