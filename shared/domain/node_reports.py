"""A recorded report in the form of a NodeMetric's status: what the gateway writes, and what readers of NodeMetric read.

Source: spec/slo-controller.md 1.2, 1.3; spec/api.md 1.2; upstream apis/slo/v1alpha1/nodemetric_types.go.
"""

from collections.abc import Sequence

from shared.events.metrics import AGGREGATIONS, NodeReported, Usage
from shared.kube.instants import SECOND, duration_text, instant_text
from shared.kube.node import AggregatedUsage, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from shared.kube.quantity import bytes_text, milli_text

NOTHING = ResourceMap()


def status_of(report: NodeReported) -> NodeMetricStatus:
    """The status, with its time in whole seconds as Kubernetes keeps it, and pods in order of namespace and name."""
    windows = report.windows
    return NodeMetricStatus(
        update_time=instant_text(report.at_ns // SECOND * SECOND),
        node_metric=NodeUsage(
            node_usage=resource_map(report.usage.cpu_milli, report.usage.memory),
            aggregated_node_usages=tuple(_aggregated(window.duration_s, window.node) for window in windows),
            system_usage=resource_map(report.system.cpu_milli, report.system.memory),
            aggregated_system_usages=tuple(_aggregated(window.duration_s, window.system) for window in windows),
        ),
        pods_metric=tuple(_pods(report)),
    )


def resource_map(cpu_milli: int | None, memory: int | None) -> ResourceMap:
    """Quantities of what is measured; an empty map says that nothing is."""
    if cpu_milli is not None and memory is not None:
        return ResourceMap(resources={"cpu": milli_text(cpu_milli), "memory": bytes_text(memory)})
    if cpu_milli is not None:
        return ResourceMap(resources={"cpu": milli_text(cpu_milli)})
    return NOTHING if memory is None else ResourceMap(resources={"memory": bytes_text(memory)})


def _pods(report: NodeReported) -> list[PodUsage]:
    found = []
    for of in report.pods:
        priority, qos = of.priority, of.qos
        for pod in of.pods:
            namespace, _, name = pod.pod.rpartition("/")
            usage = resource_map(pod.cpu_milli, pod.memory)
            found.append(PodUsage(namespace=namespace, name=name, priority=priority, qos=qos, pod_usage=usage))
    found.sort(key=lambda pod: (pod.namespace, pod.name))
    return found


def _aggregated(duration_s: int, usages: Sequence[Usage]) -> AggregatedUsage:
    """A window that has too few samples keeps its names, each with an empty map."""
    found = [resource_map(usage.cpu_milli, usage.memory) for usage in usages] or [NOTHING] * len(AGGREGATIONS)
    return AggregatedUsage(
        usage=dict(zip(AGGREGATIONS, found, strict=True)), duration=duration_text(duration_s * SECOND)
    )
