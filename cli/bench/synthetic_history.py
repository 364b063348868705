"""A history like a cluster's own: nodes, their reports, and pods on their way from waiting to running and back."""

from collections.abc import Iterator

from shared.events import Draft, Event
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodBound, PodDeleted, PodObserved
from shared.kube.meta import Metadata
from shared.kube.node import (
    AggregatedUsage,
    Node,
    NodeCondition,
    NodeMetric,
    NodeMetricStatus,
    NodeStatus,
    NodeUsage,
    ResourceMap,
)
from shared.kube.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements

NODES = 1_000
PODS = 10_000
WAVE = 100

_REQUESTS = ResourceRequirements(requests={"cpu": "500m", "memory": "512Mi"})
_CONTAINERS = (Container(name="server", image="registry.example/shop/server:1.42", resources=_REQUESTS),)
_AT = "2026-11-21T10:00:00Z"


def history(first: int, events: int) -> Iterator[Draft]:
    """Events number `first` to `first + events` of an endless history: in twenty, one report, one node, eighteen of
    pods.

    Pods come in waves, as they do in a cluster: a wave is seen waiting, is bound, is seen bound and running within a
    few hundred events, and a wave of old pods goes; ten thousand pods are there at a time.
    """
    for number in range(first, first + events):
        match number % 20:
            case 0:
                yield Draft(_report(number // 20 % NODES, number))
            case 10:
                yield Draft(_node(number // 20 % NODES, number))
            case _:
                wave, place = divmod(number, 5 * WAVE)
                yield Draft(_pod(wave * WAVE + place % WAVE, place // WAVE))


def _pod(pod: int, stage: int) -> Event:
    name, uid = f"server-{pod:07}", f"5f0e2a1c-77aa-4f10-9d3c-{pod:012}"
    node = f"node-{pod % NODES:04}"
    match stage:
        case 0:
            return _observed(name, uid, "", "Pending")
        case 1:
            return PodBound(pod=f"shop/{name}", pod_uid=uid, node=node)
        case 2:
            return _observed(name, uid, node, "Pending")
        case 4 if pod >= PODS:
            old = pod - PODS
            return PodDeleted(pod=f"shop/server-{old:07}", pod_uid=f"5f0e2a1c-77aa-4f10-9d3c-{old:012}")
        case _:
            return _observed(name, uid, node, "Running")


def _observed(name: str, uid: str, node: str, phase: str) -> PodObserved:
    metadata = Metadata(name=name, namespace="shop", uid=uid, labels={"app": "server"})
    spec = PodSpec(node_name=node, scheduler_name="koord-scheduler", containers=_CONTAINERS)
    conditions = (PodCondition(type="PodScheduled", status="True", last_transition_time=_AT),) if node else ()
    status = PodStatus(phase=phase, qos_class="Burstable", conditions=conditions)
    return PodObserved(pod=f"shop/{name}", pod_uid=uid, object=Pod(metadata=metadata, spec=spec, status=status))


def _node(node: int, number: int) -> NodeObserved:
    name = f"node-{node:04}"
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "kubernetes.io/batch-cpu": str(10_000 + number % 7_000)}
    metadata = Metadata(name=name, uid=f"node-uid-{node}", labels={"kubernetes.io/hostname": name, "pool": "general"})
    ready = (NodeCondition(type="Ready", status="True", reason="KubeletReady", last_transition_time=_AT),)
    return NodeObserved(
        node=name,
        object=Node(metadata=metadata, status=NodeStatus(capacity=amounts, allocatable=amounts, conditions=ready)),
    )


def _report(node: int, number: int) -> NodeMetricObserved:
    name = f"node-{node:04}"

    def usage(percent: int) -> ResourceMap:
        return ResourceMap(
            resources={"cpu": f"{(number * 37 + percent * 320) % 32_000}m", "memory": f"{64 + percent}Gi"}
        )

    windows = (
        AggregatedUsage(
            duration="5m0s", usage={kind: usage(at) for kind, at in (("avg", 40), ("p95", 60), ("p99", 70))}
        ),
    )
    status = NodeMetricStatus(
        update_time=_AT, node_metric=NodeUsage(node_usage=usage(40), aggregated_node_usages=windows)
    )
    return NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), status=status))
