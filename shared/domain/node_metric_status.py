"""Conversion of a recorded report to the status of a NodeMetric, for the gateway's writes and for readers of
NodeMetrics.

Source: spec/slo-controller.md 1.2, 1.3; spec/api.md 1.2; upstream apis/slo/v1alpha1/nodemetric_types.go.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shared.events.metrics import (
    AGGREGATIONS,
    ApplicationReported,
    GpuReported,
    NodeReported,
    Usage,
    ZoneReported,
)
from shared.kube.instants import SECOND, duration_text, instant_text
from shared.kube.node import (
    AggregatedUsage,
    DeviceUsage,
    HostApplicationUsage,
    NodeMetricStatus,
    NodeUsage,
    NumaUsage,
    PodUsage,
    Reclaimable,
    ResourceMap,
)
from shared.kube.quantity import bytes_text, milli_text

NOTHING = ResourceMap()


def status_of(report: NodeReported) -> NodeMetricStatus:
    """Returns the status, with its time in whole seconds as in Kubernetes, and pods ordered by namespace and name."""
    windows, gpus = report.windows, _devices(report.gpus)
    return NodeMetricStatus(
        update_time=instant_text(report.at_ns // SECOND * SECOND),
        node_metric=NodeUsage(
            node_usage=_with_devices(resource_map(report.usage.cpu_milli, report.usage.memory), gpus.get("", ())),
            aggregated_node_usages=tuple(_aggregated(window.duration_s, window.node) for window in windows),
            system_usage=resource_map(report.system.cpu_milli, report.system.memory),
            aggregated_system_usages=tuple(_aggregated(window.duration_s, window.system) for window in windows),
            numa_usages=tuple(map(_zone, report.zones)),
        ),
        pods_metric=tuple(_pods(report, gpus)),
        host_application_metric=tuple(map(_application, report.applications or ())),
        prod_reclaimable_metric=_predicted(report.reclaimable),
        prod_peak_metric=_predicted(report.peak),
    )


def resource_map(cpu_milli: int | None, memory: int | None) -> ResourceMap:
    """Returns the measured amounts as quantities; an empty map without any."""
    if cpu_milli is not None and memory is not None:
        return ResourceMap(resources={"cpu": milli_text(cpu_milli), "memory": bytes_text(memory)})
    if cpu_milli is not None:
        return ResourceMap(resources={"cpu": milli_text(cpu_milli)})
    return NOTHING if memory is None else ResourceMap(resources={"memory": bytes_text(memory)})


def _with_devices(amounts: ResourceMap, devices: Sequence[DeviceUsage]) -> ResourceMap:
    return replace(amounts, devices=tuple(devices)) if devices else amounts


def _devices(gpus: Sequence[GpuReported]) -> dict[str, list[DeviceUsage]]:
    """Returns usage of GPUs by pod, the node's under an empty name. The ratio is percent of the GPU's memory, truncated."""
    found: dict[str, list[DeviceUsage]] = {}
    for gpu in gpus:
        ratio = 100 * gpu.memory // gpu.memory_total if gpu.memory_total else 0
        amounts = {
            "koordinator.sh/gpu-core": str(gpu.core),
            "koordinator.sh/gpu-memory": bytes_text(gpu.memory),
            "koordinator.sh/gpu-memory-ratio": str(ratio),
        }
        device = DeviceUsage(id=gpu.uuid, minor=gpu.minor, type="gpu", resources=dict(amounts))
        found.setdefault(gpu.pod, []).append(device)
    return found


def _zone(zone: ZoneReported) -> NumaUsage:
    return NumaUsage(
        numa_node_id=zone.zone,
        node_usage=resource_map(zone.usage.cpu_milli, zone.usage.memory),
        system_usage=resource_map(zone.system.cpu_milli, zone.system.memory),
    )


def _application(each: ApplicationReported) -> HostApplicationUsage:
    usage = resource_map(each.cpu_milli, each.memory)
    return HostApplicationUsage(name=each.name, usage=usage, priority=each.priority, qos=each.qos)


def _predicted(amount: Usage | None) -> Reclaimable | None:
    return None if amount is None else Reclaimable(resource=resource_map(amount.cpu_milli, amount.memory))


def _pods(report: NodeReported, gpus: Mapping[str, Sequence[DeviceUsage]]) -> list[PodUsage]:
    found = []
    for of in report.pods:
        priority, qos = of.priority, of.qos
        for pod in of.pods:
            namespace, _, name = pod.pod.rpartition("/")
            usage = resource_map(pod.cpu_milli, pod.memory)
            if gpus:
                usage = _with_devices(usage, gpus.get(pod.pod, ()))
            found.append(PodUsage(namespace=namespace, name=name, priority=priority, qos=qos, pod_usage=usage))
    found.sort(key=lambda pod: (pod.namespace, pod.name))
    return found


def _aggregated(duration_s: int, usages: Sequence[Usage]) -> AggregatedUsage:
    """Converts a window; one with too few samples keeps its names, each with an empty map."""
    found = [resource_map(usage.cpu_milli, usage.memory) for usage in usages] or [NOTHING] * len(AGGREGATIONS)
    return AggregatedUsage(
        usage=dict(zip(AGGREGATIONS, found, strict=True)), duration=duration_text(duration_s * SECOND)
    )
