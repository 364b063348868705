"""Nodes, reports and pods for the tests of load-awareness, in milli-cores and bytes."""

from typing import Any

import numpy as np

from services.scheduler.plugins.load_aware_scheduling.args import read_args
from services.scheduler.plugins.load_aware_scheduling.filter_and_score import LoadState, reasons
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from services.scheduler.plugins.registry import text
from services.scheduler.state.pod_scheduling_record import true_since_ns
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.node import (
    AggregatedUsage,
    MetricCollectPolicy,
    Node,
    NodeMetric,
    NodeMetricSpec,
    NodeMetricStatus,
    NodeStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
)
from shared.kube.pod import Pod, PodCondition
from tests.support.pods import kept_pod

NOW = 1_780_000_000 * SECOND
GIB = 1 << 30
Amounts = dict[str, int]


def quantities(amounts: Amounts | None) -> dict[str, str] | None:
    return {name: f"{size}m" if name == "cpu" else str(size) for name, size in amounts.items()} if amounts else None


def usage(cpu: int, memory: int = 0) -> ResourceMap:
    return ResourceMap(resources=quantities({"cpu": cpu, "memory": memory}))


def node(cpu: int = 16_000, memory: int = 32 * GIB, **annotations: str) -> Node:
    names = {"thresholds": "scheduling.koordinator.sh/usage-thresholds", "raw": "node.koordinator.sh/raw-allocatable"}
    metadata = Metadata(name="n", annotations={names[key]: text for key, text in annotations.items()} or None)
    return Node(metadata=metadata, status=NodeStatus(allocatable=quantities({"cpu": cpu, "memory": memory})))


def pod(
    name: str = "p",
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    *,
    priority: int | None = 9500,
    owner: str = "",
    annotations: dict[str, str] | None = None,
    conditions: tuple[PodCondition, ...] = (),
) -> Pod:
    owners = (OwnerReference(kind=owner),) if owner else ()
    return kept_pod(
        name,
        annotations=annotations,
        owners=owners,
        requests=quantities(requests),
        limits=quantities(limits),
        conditions=conditions,
        priority=priority,
    )


def expecting(cpu: int, memory: int, name: str = "p", **more: Any) -> Pod:
    """A pod whose estimate is just this, under the factors of 100 of `new_load_cache`."""
    if more.get("priority") == 5500:
        return pod(name, {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}, **more)
    return pod(name, {"cpu": cpu, "memory": memory}, **more)


def reported(name: str, cpu: int, memory: int, priority: str = "koord-prod") -> PodUsage:
    return PodUsage(name=name, namespace="d", priority=priority, pod_usage=usage(cpu, memory))


def metric(
    node_usage: ResourceMap | None = None,
    *pods: PodUsage,
    at_ns: int | None = NOW,
    system: ResourceMap | None = None,
    windows: dict[str, dict[str, ResourceMap]] | None = None,
    interval_s: int | None = None,
) -> NodeMetric:
    aggregated = tuple(AggregatedUsage(usage=kinds, duration=length) for length, kinds in (windows or {}).items())
    part = NodeUsage(node_usage=node_usage, system_usage=system, aggregated_node_usages=aggregated)
    return NodeMetric(
        metadata=Metadata(name="n"),
        spec=NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(report_interval_seconds=interval_s)),
        status=NodeMetricStatus(
            update_time=None if at_ns is None else instant_text(at_ns),
            node_metric=part if node_usage is not None else None,
            pods_metric=pods,
        ),
    )


def new_load_cache(**args: Any) -> LoadCache:
    return LoadCache(read_args({"estimatedScalingFactors": {"cpu": 100, "memory": 100}} | args))


def assign(load_cache: LoadCache, pod: Pod, at_ns: int, row: int = 0) -> None:
    scheduled_ns, initialized_ns = true_since_ns(pod)
    template = load_cache.templates.of(pod)
    load_cache.count(pod.metadata.uid, row, pod.metadata.key, template, scheduled_ns or at_ns, initialized_ns or None)


def place(state: LoadState, load_cache: LoadCache, pod: Pod, row: int = 0) -> None:
    """A cycle places the pod on the node."""
    state.add(row, pod.metadata.key, load_cache.templates.of(pod), NOW)


def reason_of(load_cache: LoadCache, code: int) -> str:
    """The text of a filter's code; empty where the node passes."""
    reason = reasons(load_cache.resources)[code]
    return text(*reason) if code else ""


def filtered(load_cache: LoadCache, incoming: Pod, now_ns: int = NOW, row: int = 0) -> str:
    """The reason's text; empty when the node passes."""
    code = int(LoadState(load_cache).filter(incoming, np.array([row]), now_ns)[0])
    return reason_of(load_cache, code)


def scored(load_cache: LoadCache, incoming: Pod, now_ns: int = NOW, row: int = 0) -> int:
    return int(LoadState(load_cache).score(incoming, np.array([row]), now_ns)[0])


def added(load_cache: LoadCache, part: str, row: int = 0) -> tuple[int, ...]:
    """Sum of what the row's pods add to one of the accounts of `Share`."""
    vectors = [vector for _, share in load_cache.shares(row) if (vector := getattr(share, part)) is not None]
    return tuple(map(sum, zip(*vectors, strict=True))) if vectors else (0,) * len(load_cache.resources)
