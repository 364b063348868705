"""The node and its NodeMetric as kept in events."""

from msgspec import field

from shared.kube.meta import KubeStruct, Metadata
from shared.kube.pod import Quantities

REPORTS_MISSING = "node.koordinator.sh/reports-missing"
"""Annotation of a node whose reports stopped: its batch and mid resources are what its pods request."""


RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""Annotation with the allocatable amounts of a node before their amplification."""


class Taint(KubeStruct, frozen=True):
    """A taint; effect NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(KubeStruct, frozen=True):
    """The kept part of a node's spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(KubeStruct, frozen=True):
    """An image that is on the node, in bytes."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeCondition(KubeStruct, frozen=True):
    """A condition of a node; heartbeat times are not kept, since they are no change."""

    type: str
    status: str
    reason: str = ""
    last_transition_time: str | None = None


class NodeStatus(KubeStruct, frozen=True):
    """The kept part of a node's status."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(KubeStruct, frozen=True):
    """A node as kept in events."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class DeviceUsage(KubeStruct, frozen=True):
    """Usage of a device: `gpu-core`, `gpu-memory` and `gpu-memory-ratio` under their full names."""

    id: str = ""
    minor: int | None = None
    type: str = ""
    resources: Quantities | None = None


class ResourceMap(KubeStruct, frozen=True):
    """An amount of resources: cpu in cores and memory in bytes, as quantities."""

    resources: Quantities | None = None
    devices: tuple[DeviceUsage, ...] = ()


class AggregatedUsage(KubeStruct, frozen=True):
    """Usage over a window, by aggregation type (avg, p50, p90, p95, p99)."""

    usage: dict[str, ResourceMap] | None = None
    duration: str = "0s"


class NumaUsage(KubeStruct, frozen=True):
    """The part of a report about one NUMA zone."""

    numa_node_id: int = field(name="numaNodeID")
    node_usage: ResourceMap | None = None
    system_usage: ResourceMap | None = None


class NodeUsage(KubeStruct, frozen=True):
    """The node part of a report."""

    node_usage: ResourceMap | None = None
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceMap | None = None
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    numa_usages: tuple[NumaUsage, ...] = ()


class PodUsage(KubeStruct, frozen=True):
    """One pod's part of a report; `priority` is a class name such as koord-prod."""

    name: str = ""
    namespace: str = ""
    priority: str = ""
    qos: str = ""
    pod_usage: ResourceMap | None = None


class Reclaimable(KubeStruct, frozen=True):
    """Predicted amounts (`prodReclaimableMetric`, `prodPeakMetric`)."""

    resource: ResourceMap | None = None


class HostApplicationUsage(KubeStruct, frozen=True):
    """A process outside of pods, as reported."""

    name: str = ""
    usage: ResourceMap | None = None
    priority: str = ""
    qos: str = ""


class NodeMetricStatus(KubeStruct, frozen=True):
    """`status` of a NodeMetric. Source: spec/api.md 1.2."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] = ()
    host_application_metric: tuple[HostApplicationUsage, ...] = ()
    prod_reclaimable_metric: Reclaimable | None = None
    prod_peak_metric: Reclaimable | None = None


class AggregatePolicy(KubeStruct, frozen=True):
    """The windows of `aggregatedNodeUsages`, as Go durations."""

    durations: tuple[str, ...] = ()


class MetricCollectPolicy(KubeStruct, frozen=True):
    """The reporting interval and windows of a node."""

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: str | None = None


class NodeMetricSpec(KubeStruct, frozen=True):
    """`spec` of a NodeMetric."""

    metric_collect_policy: MetricCollectPolicy | None = None


class NodeMetric(KubeStruct, frozen=True):
    """A NodeMetric object as kept in events; its name is the node's."""

    metadata: Metadata
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()
