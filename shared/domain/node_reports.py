"""A recorded report in the form of a NodeMetric's status: what the gateway writes, and what readers of NodeMetric read.

Source: spec/slo-controller.md 1.2, 1.3; spec/api.md 1.2; upstream apis/slo/v1alpha1/nodemetric_types.go.
"""

from collections.abc import Sequence
from operator import itemgetter

from shared.events.metrics import AGGREGATIONS, NodeReported, Usage
from shared.kube.instants import SECOND, duration_text, instant_text
from shared.kube.node import AggregatedUsage, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from shared.kube.quantity import bytes_text, milli_text


def status_of(report: NodeReported) -> NodeMetricStatus:
    """The status, with its time in whole seconds as Kubernetes keeps it, and pods in order of namespace and name."""
    pods = [
        (*_split(pod.pod), of.priority, of.qos, Usage(pod.cpu_milli, pod.memory))
        for of in report.pods
        for pod in of.pods
    ]
    return NodeMetricStatus(
        update_time=instant_text(report.at_ns // SECOND * SECOND),
        node_metric=NodeUsage(
            node_usage=resource_map(report.usage),
            aggregated_node_usages=tuple(_aggregated(window.duration_s, window.node) for window in report.windows),
            system_usage=resource_map(report.system),
            aggregated_system_usages=tuple(_aggregated(window.duration_s, window.system) for window in report.windows),
        ),
        pods_metric=tuple(
            PodUsage(namespace=namespace, name=name, priority=priority, qos=qos, pod_usage=resource_map(usage))
            for namespace, name, priority, qos, usage in sorted(pods, key=itemgetter(0, 1))
        ),
    )


def resource_map(usage: Usage) -> ResourceMap:
    """Quantities of what is measured; an empty map says that nothing is."""
    quantities: dict[str, str] = {}
    if usage.cpu_milli is not None:
        quantities["cpu"] = milli_text(usage.cpu_milli)
    if usage.memory is not None:
        quantities["memory"] = bytes_text(usage.memory)
    return ResourceMap(resources=quantities or None)


def _aggregated(duration_s: int, usages: Sequence[Usage]) -> AggregatedUsage:
    """A window that has too few samples keeps its names, each with an empty map."""
    found = [resource_map(usage) for usage in usages] or [ResourceMap()] * len(AGGREGATIONS)
    return AggregatedUsage(
        usage=dict(zip(AGGREGATIONS, found, strict=True)), duration=duration_text(duration_s * SECOND)
    )


def _split(pod: str) -> tuple[str, str]:
    namespace, _, name = pod.rpartition("/")
    return namespace, name
