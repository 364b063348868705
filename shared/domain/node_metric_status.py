"""Conversion of a recorded report to the status of a NodeMetric, for the gateway's writes and for readers of
NodeMetrics.

The desired status is not recorded: it is three times as large as the report that it follows from. Gateway and simulator
derive it when they fold the report, so a change of this conversion is a new SCHEMA of their States.

Source: spec/slo-controller.md 1.2, 1.3; spec/api.md 1.2; upstream apis/slo/v1alpha1/nodemetric_types.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shared.events.intents import FieldsDesired
from shared.events.metrics import (
    AGGREGATIONS,
    ApplicationReported,
    GpuReported,
    NodeReported,
    Usage,
    ZoneReported,
)
from shared.kube.instants import SECOND, duration_text, instant_text
from shared.kube.json_text import json_value
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
from shared.kube.resource_names import NODE_METRICS

STATUS = "status"
"""The field group of a NodeMetric that report ingest owns, and the subresource that it is."""

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


def desired_status(report: NodeReported) -> FieldsDesired:
    """Returns the desired state that a report is for its node's NodeMetric, as plain JSON values."""
    patch = json_value({"status": _patch(report)})
    return FieldsDesired(resource=NODE_METRICS, name=report.node, fields=STATUS, patch=patch, subresource=STATUS)


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


def _patch(report: NodeReported) -> dict[str, Any]:
    """Returns the status as a merge patch, of which the values are typed.

    Lists replace lists, and null removes an amount that an earlier status may hold.
    """
    status = status_of(report)
    node = status.node_metric
    assert node is not None
    patch: dict[str, Any] = {
        "updateTime": status.update_time,
        "nodeMetric": {
            "nodeUsage": _with_nulls(node.node_usage)
            | {"devices": (node.node_usage and node.node_usage.devices) or None},
            "systemUsage": _with_nulls(node.system_usage),
            "aggregatedNodeUsages": node.aggregated_node_usages,
            "aggregatedSystemUsages": node.aggregated_system_usages,
            "numaUsages": node.numa_usages or None,
        },
        "podsMetric": status.pods_metric,
    }
    if report.applications is not None:
        patch["hostApplicationMetric"] = status.host_application_metric
    if report.reclaimable is not None:
        patch["prodReclaimableMetric"] = _reclaimable_patch(status.prod_reclaimable_metric)
        patch["prodPeakMetric"] = _reclaimable_patch(status.prod_peak_metric)
    return patch


def _reclaimable_patch(reclaimable: Reclaimable | None) -> dict[str, Any] | None:
    return None if reclaimable is None else {"resource": _with_nulls(reclaimable.resource)}


def _with_nulls(usage: ResourceMap | None) -> dict[str, Any]:
    resources = usage.resources or {} if usage else {}
    return {"resources": {"cpu": resources.get("cpu"), "memory": resources.get("memory")}}
