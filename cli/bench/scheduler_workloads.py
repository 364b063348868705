"""Clusters and pods for `koord bench scheduler`: many equal pods, pods that all differ, pods with terms about other
pods.
"""

from collections.abc import Callable, Iterator, Mapping

from shared.events.cluster import NodeMetricObserved, NodeObserved, PodObserved
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric, NodeMetricStatus, NodeStatus, NodeUsage, ResourceMap
from shared.kube.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from shared.kube.selectors import LabelSelector

NOW_NS = 1_780_000_000 * SECOND
ZONES = 10
SERVICES = 20
"""Labels that constrained pods are selected by."""

_AT = instant_text(NOW_NS)
_SCHEDULER = "koord-scheduler"


def nodes(count: int) -> Iterator[NodeObserved | NodeMetricObserved]:
    """Nodes of 32 cores and 256 GiB in ten zones, each with a report of some load."""
    for number in range(count):
        name = f"node-{number:06}"
        labels = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
            "kubernetes.io/arch": "amd64",
        }
        allocatable = {"cpu": "32", "memory": "256Gi", "pods": "256", "ephemeral-storage": "1Ti"}
        yield NodeObserved(
            node=name,
            object=Node(
                metadata=Metadata(name=name, uid=f"uid-{name}", labels=labels),
                status=NodeStatus(allocatable=allocatable, capacity=allocatable),
            ),
        )
        used = ResourceMap(
            resources={"cpu": f"{1_000 + number % 97 * 50}m", "memory": f"{8_192 + number % 89 * 128}Mi"}
        )
        status = NodeMetricStatus(update_time=_AT, node_metric=NodeUsage(node_usage=used))
        yield NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), status=status))


def equal(_: int) -> PodSpec:
    """Every pod asks for the same."""
    return _spec(500, 512)


def different(number: int) -> PodSpec:
    """No two pods ask for the same."""
    return _spec(100 + number % 1_000, 256 + number // 1_000)


def constrained(number: int) -> PodSpec:
    """Each pod keeps away from its own kind on a node and spreads over the zones."""
    selector = LabelSelector(match_labels=_service(number))
    apart = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=selector)
    spread = TopologySpreadConstraint(
        max_skew=5,
        topology_key="topology.kubernetes.io/zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=selector,
    )
    spec = _spec(500, 512)
    return PodSpec(
        scheduler_name=spec.scheduler_name,
        containers=spec.containers,
        affinity=Affinity(pod_anti_affinity=PodAffinity(required=(apart,))),
        topology_spread_constraints=(spread,),
    )


KINDS: Mapping[str, Callable[[int], PodSpec]] = {"equal": equal, "different": different, "constrained": constrained}
"""What the pods of a run have in common."""


def pods(kind: str, first: int, count: int) -> Iterator[PodObserved]:
    """Waiting pods number `first` to `first + count`."""
    spec, apart = KINDS[kind], kind == "constrained"
    for number in range(first, first + count):
        labels = _service(number if apart else 0)
        name, uid = f"pod-{number:07}", f"5f0e2a1c-77aa-4f10-9d3c-{number:012}"
        metadata = Metadata(name=name, namespace="bench", uid=uid, labels=labels, creation_timestamp=_AT)
        yield PodObserved(
            pod=f"bench/{name}",
            pod_uid=uid,
            object=Pod(metadata=metadata, spec=spec(number), status=PodStatus(phase="Pending", qos_class="Burstable")),
        )


def _service(number: int) -> dict[str, str]:
    return {"app": f"service-{number % SERVICES}"}


def _spec(milli_cores: int, mebibytes: int) -> PodSpec:
    requests = {"cpu": f"{milli_cores}m", "memory": f"{mebibytes}Mi"}
    return PodSpec(
        scheduler_name=_SCHEDULER,
        containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
    )
