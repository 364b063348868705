"""Recorded cases of evictions by cpu and memory: rounds with a store of metrics each, and an executor that may refuse."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from cli.parity.runners.node_agent.series import Store
from services.node_agent.qos import cpu_evict, evict, memory_evict
from services.node_agent.qos.cpu_evict import BestEffort, Window
from services.node_agent.qos.evict import Outcome, Task
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold

Judge = Callable[..., Outcome]


class _Round:
    """One round's question."""

    def __init__(self, given: Mapping[str, Any], now: Mapping[str, Any], node: Node, pods: list[Pod]) -> None:
        self.now_ns = instant_ns(now["time"])
        self.store = Store(now["series"])
        self.every_s: int = given["collectIntervalSeconds"]
        self.threshold = _threshold(now["threshold"])
        self.node, self.pods = node, pods

    def last(self, metric: str) -> dict[str, float]:
        """Uid -> newest value."""
        begin = self.now_ns - 2 * self.every_s * SECOND
        uids = [pod.metadata.uid for pod in self.pods]
        found = {uid: self.store.last(metric, begin, self.now_ns, pod_uid=uid) for uid in uids}
        return {uid: number for uid, number in found.items() if number is not None}

    def best_effort(self, begin_ns: int, *, newest: bool = False) -> tuple[BestEffort | None, int]:
        """Means, or newest values, and the number of samples."""
        found, samples = [], 0
        for what in ("usage", "request", "real-limit"):
            labels = {"be_resource": "cpu", "be_allocation": what}
            values = self.store.within("node_be", begin_ns, self.now_ns, **labels)
            if not values:
                return None, 0
            samples = samples or len(values)
            found.append(values[-1] if newest else sum(values) / len(values))
        return BestEffort(*found), samples


def _threshold(raw: Mapping[str, Any] | None) -> ResourceThreshold | None:
    if raw is None:
        return None
    names = {field.encode_name: field.name for field in msgspec.structs.fields(ResourceThreshold)}
    return ResourceThreshold(**{names[name]: value for name, value in raw.items()})  # bounds are the webhook's


def cpu_evictions(given: Mapping[str, Any], *, upstream: bool = False) -> dict[str, Any]:
    """Op `cpuEvict`."""
    features = ("BECPUEvict", "CPUAllocatableEvict", "CPUEvict")
    return _run(given, features, partial(_cpu, upstream=upstream), starts_cool=True)


def memory_evictions(given: Mapping[str, Any], *, upstream: bool = False) -> dict[str, Any]:
    """Op `memoryEvict`."""
    features = ("BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict")
    return _run(given, features, partial(_memory, upstream=upstream), starts_cool=False)


def native_is_short(op: str, given: Mapping[str, Any]) -> bool:
    """Whether pods ask for more cpu or memory as such than the node has, in one of the rounds."""
    if op not in {"cpuEvict", "memoryEvict"}:
        return False
    rounds = upstreams(op, given)["rounds"]
    tasks = [task for each in rounds for name, task in each["tasks"].items() if name.endswith("AllocatableEvict")]
    return any({"cpu", "memory"} & task.get("release", {}).keys() for task in tasks)


def upstreams(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What upstream answers where native resources are short."""
    return (cpu_evictions if op == "cpuEvict" else memory_evictions)(given, upstream=True)


def _cpu(feature: str, at: _Round, *, upstream: bool) -> Outcome:
    assert at.threshold is not None
    if feature == "CPUAllocatableEvict":
        cores = at.last("pod_cpu_usage")
        return cpu_evict.by_allocatable(at.threshold, at.node, at.pods, cores, upstream=upstream)
    begin = at.now_ns - cpu_evict.window_s(at.threshold, at.every_s) * SECOND
    mean, samples = at.best_effort(begin)
    window = Window(mean, samples, at.store.mean("node_cpu_usage", begin, at.now_ns))
    cores = at.last("pod_cpu_usage")
    if feature == "CPUEvict":
        return cpu_evict.by_usage(at.threshold, at.node, at.pods, cores, window)
    last, _ = at.best_effort(at.now_ns - 2 * at.every_s * SECOND, newest=True)
    return cpu_evict.best_effort(
        at.threshold, at.node, at.pods, cores, mean=window, last=last, collect_every_s=at.every_s
    )


def _memory(feature: str, at: _Round, *, upstream: bool) -> Outcome:
    assert at.threshold is not None
    used = at.store.last("node_memory_usage", at.now_ns - 2 * at.every_s * SECOND, at.now_ns)
    match feature:
        case "BEMemoryEvict":
            return memory_evict.best_effort(at.threshold, at.node, at.pods, at.last("pod_memory_usage"), used)
        case "MemoryEvict":
            return memory_evict.by_usage(at.threshold, at.node, at.pods, at.last("pod_memory_usage"), used)
    used_bytes = at.last("pod_memory_usage")
    return memory_evict.by_allocatable(at.threshold, at.node, at.pods, used_bytes, upstream=upstream)


def _run(given: Mapping[str, Any], features: tuple[str, ...], judge: Judge, *, starts_cool: bool) -> dict[str, Any]:
    node = msgspec.convert(given["node"], Node)
    pods = [msgspec.convert(pod, Pod) for pod in given["pods"]]
    last_ns = instant_ns(given["startTime"]) if starts_cool else None
    evicted: set[str] = set()
    said = []
    for now in given["rounds"]:
        at = _Round(given, now, node, pods)
        cooling = last_ns is not None and at.now_ns < last_ns + given["coolTimeSeconds"] * SECOND
        outcomes: dict[str, Outcome] = {}
        if not cooling and at.threshold is not None and at.threshold.enable:
            outcomes = {feature: judge(feature, at) for feature in features if given["gates"][feature]}
        tasks = [outcome for outcome in outcomes.values() if isinstance(outcome, Task)]
        evictions = evict.carry_out(
            tasks,
            lambda pod, _: pod.metadata.name not in given["evictReject"],
            lambda pod, evicted=frozenset(evicted): pod.metadata.uid in evicted,  # type: ignore[misc]
        )
        done = {each.pod.metadata.uid for each in evictions if each.done}
        evicted |= done
        if done:
            last_ns = at.now_ns
        if given.get("removeEvicted"):
            pods = [pod for pod in pods if pod.metadata.uid not in evicted]
        said.append(
            {
                "cooling": cooling,
                "tasks": {feature: _said(outcome) for feature, outcome in outcomes.items()},
                "evictions": [
                    {
                        "pod": each.pod.metadata.name,
                        "reason": "evicted",
                        "message": f"trigger by koordlet feature {each.feature}, kill pod: {each.pod.metadata.name}",
                        "success": each.done,
                    }
                    for each in evictions
                ],
                "lastEvictTime": None if last_ns is None else instant_text(last_ns),
            }
        )
    return {"rounds": said}


def _said(outcome: Outcome) -> dict[str, Any]:
    if not isinstance(outcome, Task):
        return {"state": outcome.value}
    return {
        "state": "task",
        "release": dict(outcome.release),
        "releaseKind": outcome.kind.value,
        "candidates": [each.pod.metadata.name for each in outcome.candidates],
    }
