"""One step of the simulated cluster: intents, requests and timers, carried out in a fixed order, as events.

The order: objects of a new cluster, intents, requests of clients, generated pods, pods that start and end, pods of
ReplicaSets, reports.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from services.simulator import generated_cluster, intent_execution
from services.simulator.api import request_execution
from services.simulator.api.api_transaction import ApiTransaction
from services.simulator.api.request_execution import Request
from services.simulator.api.resource_kinds import NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from services.simulator.kubelet.pod_lifecycle import next_change_ns, next_pod
from services.simulator.kubelet.timers import report_ns
from services.simulator.kubelet.usage_reports import reports
from services.simulator.replica_sets import keep_replicas
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from shared.events import Draft
from shared.kube.instants import instant_ns
from shared.kube.node import MetricCollectPolicy, NodeMetricSpec
from shared.kube.pod import Pod

ARRIVALS = 500
"""Generated pods that one step creates, at most."""


class DueObjects(NamedTuple):
    """Objects whose timers have expired: pods (by key) that may change, nodes that may report."""

    pods: Sequence[str] = ()
    reports: Sequence[str] = ()


class Step(NamedTuple):
    """The events to append, and the responses to the requests, in their order."""

    drafts: list[Draft]
    responses: list[bytes]


def decide(
    state: SimulatorState, requested: Sequence[Request], due: DueObjects, settings: SimulatorSettings, now_ns: int
) -> Step:
    """Executes everything that waits."""
    api = ApiTransaction(state, seed=settings.seed, timings=settings.timings, now_ns=now_ns)
    if not is_begun(state):
        begin(api, settings)
    intent_execution.execute(api, state)
    responses = [request_execution.execute(api, request) for request in requested]
    create_arrivals(api, state, settings)
    advance_pods(api, due.pods, settings)
    keep_replicas(api)
    report(api, state, due.reports, settings)
    intent_execution.reapply_desired_states(api, state)
    return Step(api.drafts, responses)


def is_begun(state: SimulatorState) -> bool:
    """Reports whether the cluster has its first objects."""
    return "default" in state.objects.get(NAMESPACES.name, ())


def begin(api: ApiTransaction, settings: SimulatorSettings) -> None:
    """Creates the objects of a new cluster: namespaces, PriorityClasses and the generated nodes."""
    for namespace in generated_cluster.namespaces():
        api.create(NAMESPACES, namespace)
    for priority_class in generated_cluster.priority_classes():
        api.create(PRIORITY_CLASSES, priority_class)
    for number in range(settings.nodes):
        api.create(NODES, generated_cluster.node(number, settings))


def next_arrival_ns(state: SimulatorState, settings: SimulatorSettings) -> int | None:
    """Returns the instant of the next generated pod; None when all exist."""
    namespace = state.objects.get(NAMESPACES.name, {}).get("default")
    if not isinstance(namespace, dict):
        return None
    began_ns = instant_ns(namespace["metadata"]["creationTimestamp"])
    return generated_cluster.arrival_ns(state.arrivals, settings, began_ns)


def create_arrivals(api: ApiTransaction, state: SimulatorState, settings: SimulatorSettings) -> None:
    """Creates the generated pods whose time has come. A pod whose name is taken by a client's gets a longer name."""
    first_ns = next_arrival_ns(state, settings)
    if first_ns is None or first_ns > api.now_ns:
        return
    late_ns = api.now_ns - first_ns
    rate_count = int(late_ns * settings.pods_per_s / 10**9) + 1 if settings.pods_per_s else ARRIVALS
    count = min(ARRIVALS, rate_count, settings.pods - state.arrivals)
    for number in range(state.arrivals, state.arrivals + count):
        body = generated_cluster.pod(number, settings)
        while api.pod(body.metadata.key):
            body = replace(body, metadata=replace(body.metadata, name=f"{body.metadata.name}-{number}"))
        api.create(PODS, body)


def advance_pods(api: ApiTransaction, keys: Iterable[str], settings: SimulatorSettings) -> None:
    """Starts and ends the pods whose time has come."""
    for key in keys:
        pod = api.pod(key)
        due = next_change_ns(pod, settings.timings) if pod else None
        if pod is None or due is None or due > api.now_ns:
            continue
        moved = next_pod(pod, api.now_ns)
        if moved is None:
            api.remove(PODS.name, key)
        else:
            api.put(PODS.name, key, moved)


def report(api: ApiTransaction, state: SimulatorState, names: Iterable[str], settings: SimulatorSettings) -> None:
    """Writes the NodeMetric of each node whose report is due."""
    nodes = [node for name in names if (node := api.node(name)) and _reports(name, state, settings, api.now_ns)]
    if not nodes:
        return
    pods: dict[str, list[Pod]] = {}
    for node in nodes:
        keys = state.pods_on.get(node.metadata.name, ())
        pods[node.metadata.name] = [pod for key in keys if (pod := api.pod(key))]
    spec = NodeMetricSpec(
        metric_collect_policy=MetricCollectPolicy(
            aggregate_duration_seconds=settings.average_s, report_interval_seconds=settings.report_interval_s
        )
    )
    statuses = reports(nodes, pods, average_s=settings.average_s, now_ns=api.now_ns)
    for node, status in zip(nodes, statuses, strict=True):
        api.report(node.metadata.name, spec, status)


def _reports(name: str, state: SimulatorState, settings: SimulatorSettings, now_ns: int) -> bool:
    at_ns = report_ns(name, state, settings)
    return at_ns is not None and at_ns <= now_ns
