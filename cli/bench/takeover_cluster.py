"""A cluster at work for `koord bench takeover`: nodes full of pods that run, each node's report naming its pods."""

from collections.abc import Iterator

from cli.bench.scheduler_workloads import nodes as bare_nodes
from shared.events import Event
from shared.events.cluster import InitialListCompleted, NodeMetricObserved, PodObserved
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import NodeMetric, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from shared.kube.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements

CLASSES = 500
"""Workloads: pods of one are equal."""

_CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")


def fleet(nodes: int, pods: int, now_ns: int) -> Iterator[Event]:
    """Observations of a running cluster by the gateway: its nodes, the pods on them, a fresh report of each node."""
    for event in bare_nodes(nodes):
        if not isinstance(event, NodeMetricObserved):
            yield event
    for number in range(pods):
        yield pod(number, now_ns, node=_node(number % nodes))
    for number in range(nodes):
        yield report(number, range(number, pods, nodes), now_ns)
    yield InitialListCompleted(objects=2 * nodes + pods)


def pod(number: int, now_ns: int, *, node: str = "") -> PodObserved:
    """A pod that has run on its node for an hour, or that waits for one."""
    workload = number % CLASSES
    requests = {"cpu": f"{100 + workload % 300}m", "memory": "512Mi"}
    container = Container(
        name="main",
        image=f"registry.example/shop/app-{workload}:1.2",
        resources=ResourceRequirements(requests=requests, limits=requests),
    )
    since = instant_text(now_ns - 3600 * SECOND)
    conditions = tuple(PodCondition(type=kind, status="True", last_transition_time=since) for kind in _CONDITIONS)
    name, uid = _name(number), f"5f0e2a1c-77aa-4f10-9d3c-{number:012}"
    metadata = Metadata(
        name=name, namespace="shop", uid=uid, labels={"app": f"app-{workload}"}, creation_timestamp=since
    )
    spec = PodSpec(node_name=node, scheduler_name="koord-scheduler", containers=(container,), priority=9000)
    status = PodStatus(phase="Running", qos_class="Guaranteed", conditions=conditions, start_time=since)
    waiting = PodStatus(phase="Pending", qos_class="Guaranteed")
    return PodObserved(
        pod=f"shop/{name}",
        pod_uid=uid,
        object=Pod(metadata=metadata, spec=spec, status=status if node else waiting),
    )


def report(number: int, pods: range, now_ns: int) -> NodeMetricObserved:
    """Usage of a node and of each of its pods."""
    name = _node(number)
    used = tuple(
        PodUsage(
            name=_name(each), namespace="shop", priority="koord-prod",
            pod_usage=ResourceMap(resources={"cpu": f"{50 + each % 97}m", "memory": "300Mi"}),
        )
        for each in pods
    )  # fmt: skip
    whole = ResourceMap(resources={"cpu": f"{1_000 + number % 97 * 50}m", "memory": f"{8_192 + number % 89 * 128}Mi"})
    status = NodeMetricStatus(
        update_time=instant_text(now_ns), node_metric=NodeUsage(node_usage=whole), pods_metric=used
    )
    return NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), status=status))


def _node(number: int) -> str:
    return f"node-{number:06}"


def _name(number: int) -> str:
    return f"app-{number % CLASSES}-{number:07}"
