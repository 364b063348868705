"""One step of the simulated cluster: what was asked of it and what is due, carried out in one order, as events.

The order is fixed: what a new cluster holds, intents, requests of clients, pods that come, pods that start and end, reports.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from services.simulator import generated_workload, intent_execution
from services.simulator.api import requests
from services.simulator.api.api_server import Cluster
from services.simulator.api.requests import Request
from services.simulator.api.resource_kinds import NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from services.simulator.kubelet.pod_lifecycle import due_ns, next_pod
from services.simulator.kubelet.usage_reports import reports
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from services.simulator.timers import report_ns
from shared.events import Draft
from shared.kube.instants import instant_ns
from shared.kube.node import MetricCollectPolicy, NodeMetricSpec
from shared.kube.pod import Pod

ARRIVALS = 500
"""Generated pods that one step creates, at most."""


class Due(NamedTuple):
    """What the timers have taken off: pods (by key) that may change, nodes that may report."""

    pods: Sequence[str] = ()
    reports: Sequence[str] = ()


class Step(NamedTuple):
    """What is appended, and the answers to the requests, in their order."""

    drafts: list[Draft]
    answers: list[bytes]


def decide(state: SimulatorState, asked: Sequence[Request], due: Due, settings: SimulatorSettings, now_ns: int) -> Step:
    """Carry out everything that waits."""
    cluster = Cluster(state, seed=settings.seed, pace=settings.pace, now_ns=now_ns)
    if not is_begun(state):
        begin(cluster, settings)
    intent_execution.carry_out(cluster, state)
    answers = [requests.carry_out(cluster, request) for request in asked]
    arrive(cluster, state, settings)
    move_pods(cluster, due.pods, settings)
    report(cluster, state, due.reports, settings)
    intent_execution.keep_levels(cluster, state)
    return Step(cluster.drafts, answers)


def is_begun(state: SimulatorState) -> bool:
    """Whether the cluster has come into being."""
    return "default" in state.objects.get(NAMESPACES.name, ())


def begin(cluster: Cluster, settings: SimulatorSettings) -> None:
    """Create what a new cluster holds: namespaces, PriorityClasses and the generated nodes."""
    for namespace in generated_workload.namespaces():
        cluster.create(NAMESPACES, namespace)
    for priority_class in generated_workload.priority_classes():
        cluster.create(PRIORITY_CLASSES, priority_class)
    for number in range(settings.nodes):
        cluster.create(NODES, generated_workload.node(number, settings))


def next_arrival_ns(state: SimulatorState, settings: SimulatorSettings) -> int | None:
    """When the next generated pod comes; None when all have come."""
    namespace = state.objects.get(NAMESPACES.name, {}).get("default")
    if not isinstance(namespace, dict):
        return None
    began_ns = instant_ns(namespace["metadata"]["creationTimestamp"])
    return generated_workload.arrival_ns(state.arrivals, settings, began_ns)


def arrive(cluster: Cluster, state: SimulatorState, settings: SimulatorSettings) -> None:
    """Create the generated pods whose time has come. One whose name a client has taken gets a longer name."""
    first_ns = next_arrival_ns(state, settings)
    if first_ns is None or first_ns > cluster.now_ns:
        return
    late_ns = cluster.now_ns - first_ns
    rate_count = int(late_ns * settings.pods_per_s / 10**9) + 1 if settings.pods_per_s else ARRIVALS
    count = min(ARRIVALS, rate_count, settings.pods - state.arrivals)
    for number in range(state.arrivals, state.arrivals + count):
        body = generated_workload.pod(number, settings)
        while cluster.pod(body.metadata.key):
            body = replace(body, metadata=replace(body.metadata, name=f"{body.metadata.name}-{number}"))
        cluster.create(PODS, body)


def move_pods(cluster: Cluster, keys: Iterable[str], settings: SimulatorSettings) -> None:
    """Start and end the pods whose time has come."""
    for key in keys:
        pod = cluster.pod(key)
        due = due_ns(pod, settings.pace) if pod else None
        if pod is None or due is None or due > cluster.now_ns:
            continue
        moved = next_pod(pod, cluster.now_ns)
        if moved is None:
            cluster.remove(PODS.name, key)
        else:
            cluster.put(PODS.name, key, moved)


def report(cluster: Cluster, state: SimulatorState, names: Iterable[str], settings: SimulatorSettings) -> None:
    """Write the NodeMetric of each node that is to report."""
    nodes = [node for name in names if (node := cluster.node(name)) and _reports(name, state, settings, cluster.now_ns)]
    if not nodes:
        return
    pods: dict[str, list[Pod]] = {}
    for node in nodes:
        keys = state.pods_on.get(node.metadata.name, ())
        pods[node.metadata.name] = [pod for key in keys if (pod := cluster.pod(key))]
    spec = NodeMetricSpec(
        metric_collect_policy=MetricCollectPolicy(
            aggregate_duration_seconds=settings.average_s, report_interval_seconds=settings.report_interval_s
        )
    )
    statuses = reports(nodes, pods, average_s=settings.average_s, now_ns=cluster.now_ns)
    for node, status in zip(nodes, statuses, strict=True):
        cluster.report(node.metadata.name, spec, status)


def _reports(name: str, state: SimulatorState, settings: SimulatorSettings, now_ns: int) -> bool:
    at_ns = report_ns(name, state, settings)
    return at_ns is not None and at_ns <= now_ns
