"""Clusters and pods for `koord bench scheduler`: many equal pods, pods that all differ, pods with terms about other
pods.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from services.scheduler.state.watched_api_resources import (
    DEVICES,
    NETWORK_TOPOLOGIES,
    NODE_TOPOLOGIES,
    POD_GROUPS,
    RESERVATIONS,
)
from shared.domain.gang import POD_GROUP_LABEL, TOPOLOGY
from shared.events.cluster import NodeMetricObserved, NodeObserved, ObjectObserved, PodObserved
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
CPUS = 32
MEMORY_MIB = 256 * 1024
NUMA_NODES = 2
RESERVATIONS_PER_MATCH = 5
EQUAL_MILLI_CORES, EQUAL_MEBIBYTES = 500, 512
TOO_MANY_CORES = 1_000
"""Cores that pods of refused classes request at least: no node has them."""

NO_LABELS: Mapping[str, str] = {}

GPUS = 8
GPU_CORE, GPU_RATIO, GPU_MEMORY = (
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/gpu-memory",
)
GPU_REQUESTS: tuple[Mapping[str, str], ...] = (
    {"koordinator.sh/gpu": "50"},
    {"koordinator.sh/gpu": "100"},
    {"koordinator.sh/gpu": "25"},
    {"koordinator.sh/gpu": "200"},
    {GPU_MEMORY: "20Gi"},
    {"koordinator.sh/gpu": "100"},
)
_SAME_SWITCH = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'

_AT = instant_text(NOW_NS)
_SCHEDULER = "koord-scheduler"


def nodes(
    count: int, numa_count: int = 0, *, racks: int = 0, tiers: int = 0
) -> Iterator[NodeObserved | NodeMetricObserved | ObjectObserved]:
    """Yields nodes of 32 cores and 256 GiB in ten zones, each with a report of some load.

    Args:
        numa_count: how many of them, from the first on, have a NUMA topology policy and report two NUMA nodes.
        racks, tiers: labels of the network: the rack, and above it tiers of half as many domains each; none with 0.
    """
    for number in range(count):
        name = f"node-{number:06}"
        yield node(number, has_policy=number < numa_count, network=_network_labels(number, count, racks, tiers))
        if number < numa_count:
            yield _numa_topology(name)
        used = ResourceMap(
            resources={"cpu": f"{1_000 + number % 97 * 50}m", "memory": f"{8_192 + number % 89 * 128}Mi"}
        )
        status = NodeMetricStatus(update_time=_AT, node_metric=NodeUsage(node_usage=used))
        yield NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), status=status))


def _network_labels(number: int, count: int, racks: int, tiers: int) -> dict[str, str]:
    rack = number * racks // count
    return {f"network.example.com/tier-{tier}": f"domain-{rack >> tier}" for tier in range(tiers if racks else 0)}


def network_topology(tiers: int) -> ObjectObserved:
    """Returns the ClusterNetworkTopology of the labels that `nodes` writes: the racks are the innermost tier."""
    names = [f"tier-{tier}" for tier in reversed(range(tiers))]
    layers = [
        {"topologyLayer": name, "parentTopologyLayer": above, "labelKey": [f"network.example.com/{name}"]}
        for name, above in zip(names, ("ClusterTopologyLayer", *names), strict=False)
    ]
    layers.append({"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": names[-1]})
    body = {"metadata": {"name": "default", "uid": "network"}, "spec": {"networkTopologySpec": layers}}
    return ObjectObserved(resource=NETWORK_TOPOLOGIES, name="default", uid="network", object=body)


def gang_events(name: str, size: int, cpu_milli: int, layer: str) -> Iterator[ObjectObserved | PodObserved]:
    """Yields a PodGroup and its pods.

    Args:
        layer: of which one domain has to hold the gang.
    """
    wish = f'{{"gatherStrategy":[{{"layer":"{layer}","strategy":"MustGather"}}]}}'
    group = {"name": name, "namespace": "bench", "annotations": {TOPOLOGY: wish}}
    body = {"metadata": group, "spec": {"minMember": size}}
    yield ObjectObserved(resource=POD_GROUPS, name=f"bench/{name}", uid=name, object=body)
    requests = {"cpu": f"{cpu_milli}m", "memory": "1Gi"}
    spec = PodSpec(
        scheduler_name=_SCHEDULER,
        containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
    )
    for number in range(size):
        metadata = Metadata(
            name=f"{name}-{number}", namespace="bench", uid=f"{name}-{number}", labels={POD_GROUP_LABEL: name}
        )
        yield PodObserved(
            pod=f"bench/{name}-{number}",
            pod_uid=f"{name}-{number}",
            object=Pod(metadata=metadata, spec=spec, status=PodStatus(phase="Pending")),
        )


def node(
    number: int,
    *,
    has_policy: bool = False,
    memory_mib: int = MEMORY_MIB,
    network: Mapping[str, str] = NO_LABELS,
) -> NodeObserved:
    """Returns the node of that number."""
    name = f"node-{number:06}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
        "kubernetes.io/arch": "amd64",
        **network,
        **({"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"} if has_policy else {}),
    }
    allocatable = {"cpu": str(CPUS), "memory": f"{memory_mib}Mi", "pods": "256", "ephemeral-storage": "1Ti"}
    return NodeObserved(
        node=name,
        object=Node(
            metadata=Metadata(name=name, uid=f"uid-{name}", labels=labels),
            status=NodeStatus(allocatable=allocatable, capacity=allocatable),
        ),
    )


def _numa_topology(name: str) -> ObjectObserved:
    """Returns the NodeResourceTopology of a node with two NUMA nodes, a socket each, and two threads a core."""
    half = CPUS // NUMA_NODES
    cpus = [{"id": id_, "core": id_ // 2, "socket": id_ // half, "node": id_ // half} for id_ in range(CPUS)]
    topology = msgspec.json.encode({"detail": cpus}).decode()
    resources = [
        {"name": "cpu", "allocatable": str(half)},
        {"name": "memory", "allocatable": f"{MEMORY_MIB // NUMA_NODES}Mi"},
    ]
    zones = [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(NUMA_NODES)]
    metadata = {"name": name, "annotations": {"node.koordinator.sh/cpu-topology": topology}}
    body = {"metadata": metadata, "zones": zones}
    return ObjectObserved(resource=NODE_TOPOLOGIES, name=name, uid=f"topology-{name}", object=body)


def equal(_: int) -> PodSpec:
    """All pods have the same requests."""
    return _spec(EQUAL_MILLI_CORES, EQUAL_MEBIBYTES)


def different(number: int) -> PodSpec:
    """No two pods have the same requests."""
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


def numa(_: int) -> PodSpec:
    """Returns equal pods that get four CPUs of their own, if their labels request it."""
    return _spec(4_000, 8_192)


def gpu(number: int) -> PodSpec:
    """Returns pods with parts of GPUs, whole ones, and several, mixed."""
    return _spec(250, 512, GPU_REQUESTS[number % len(GPU_REQUESTS)])


def gpu_joint(number: int) -> PodSpec:
    """Returns pods with whole GPUs and a network card below the same PCIe switch."""
    return _spec(250, 512, {"koordinator.sh/gpu": "100" if number % 2 else "200", "koordinator.sh/rdma": "1"})


KINDS: Mapping[str, Callable[[int], PodSpec]] = {
    "equal": equal,
    "different": different,
    "constrained": constrained,
    "numa": numa,
    "gpu": gpu,
    "gpu-joint": gpu_joint,
}
"""What the pods of a run have in common."""

_LSR = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}


def pods(kind: str, first: int, count: int) -> Iterator[PodObserved]:
    """Waiting pods number `first` to `first + count`."""
    spec, apart = KINDS[kind], kind == "constrained"
    for number in range(first, first + count):
        labels = _service(number if apart else 0) | (_LSR if kind == "numa" else {})
        notes = {"scheduling.koordinator.sh/device-joint-allocate": _SAME_SWITCH} if kind == "gpu-joint" else None
        name, uid = f"pod-{number:07}", f"5f0e2a1c-77aa-4f10-9d3c-{number:012}"
        metadata = Metadata(
            name=name, namespace="bench", uid=uid, labels=labels, annotations=notes, creation_timestamp=_AT
        )
        yield PodObserved(
            pod=f"bench/{name}",
            pod_uid=uid,
            object=Pod(metadata=metadata, spec=spec(number), status=PodStatus(phase="Pending", qos_class="Burstable")),
        )


def refused_pods(classes: int) -> Iterator[PodObserved]:
    """Yields one pod of each of so many classes that fit nowhere."""
    for number in range(classes):
        name, uid = f"refused-{number:04}", f"00000000-0000-0000-0000-{number:012}"
        metadata = Metadata(name=name, namespace="bench", uid=uid, creation_timestamp=_AT)
        spec = _spec((TOO_MANY_CORES + number) * 1_000, 512)
        yield PodObserved(
            pod=f"bench/{name}",
            pod_uid=uid,
            object=Pod(metadata=metadata, spec=spec, status=PodStatus(phase="Pending")),
        )


def reservations(count: int, node_count: int, pods_each: int) -> Iterator[ObjectObserved]:
    """Yields Reservations that are available, spread over the nodes; every fifth is for the pods of a run.

    Args:
        pods_each: equal pods that each holds capacity for; one of them consumes a Reservation for one.
    """
    held = _spec(pods_each * EQUAL_MILLI_CORES, pods_each * EQUAL_MEBIBYTES)
    for number in range(count):
        name, on = f"reservation-{number:06}", f"node-{number * node_count // count:06}"
        matches = number % RESERVATIONS_PER_MATCH == 0
        body = {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": _AT},
            "spec": {
                "template": {"spec": msgspec.to_builtins(held)},
                "owners": [{"labelSelector": {"matchLabels": _service(0) if matches else {"app": "another"}}}],
                "allocateOnce": pods_each == 1,
                "ttl": "24h",
            },
            "status": {"phase": "Available", "nodeName": on},
        }
        yield ObjectObserved(resource=RESERVATIONS, name=name, uid=f"uid-{name}", object=body)


def gpu_devices(count: int) -> Iterator[NodeObserved | ObjectObserved]:
    """Yields the Devices of so many nodes, with eight GPUs and four network cards, and the nodes with their amounts."""
    for number in range(count):
        name = f"node-{number:06}"
        cards: list[dict[str, object]] = [
            {
                "type": "gpu",
                "minor": minor,
                "id": f"GPU-{name}-{minor}",
                "health": True,
                "resources": {GPU_CORE: "100", GPU_RATIO: "100", GPU_MEMORY: "80Gi"},
                "topology": _below(minor // 2),
            }
            for minor in range(GPUS)
        ]
        cards += [
            {
                "type": "rdma",
                "minor": minor,
                "id": f"mlx5_{minor}",
                "health": True,
                "resources": {"koordinator.sh/rdma": "100"},
                "topology": _below(minor),
            }
            for minor in range(GPUS // 2)
        ]
        body = {"metadata": {"name": name}, "spec": {"devices": cards}}
        yield ObjectObserved(resource=DEVICES, name=name, uid=f"device-{name}", object=body)
        observed = node(number)
        amounts = {GPU_CORE: f"{100 * GPUS}", GPU_RATIO: f"{100 * GPUS}", GPU_MEMORY: f"{80 * GPUS}Gi"}
        amounts |= {"koordinator.sh/gpu": f"{100 * GPUS}", "koordinator.sh/rdma": f"{50 * GPUS}"}
        allocatable = {**(observed.object.status.allocatable or {}), **amounts}
        yield NodeObserved(
            node=name,
            object=msgspec.structs.replace(
                observed.object, status=NodeStatus(allocatable=allocatable, capacity=allocatable)
            ),
        )


def _below(switch: int) -> dict[str, object]:
    return {"socketID": switch // 2, "nodeID": switch // 2, "pcieID": f"pcie-{switch}"}


def _service(number: int) -> dict[str, str]:
    return {"app": f"service-{number % SERVICES}"}


def _spec(milli_cores: int, mebibytes: int, more: Mapping[str, str] = NO_LABELS) -> PodSpec:
    requests = {"cpu": f"{milli_cores}m", "memory": f"{mebibytes}Mi", **more}
    return PodSpec(
        scheduler_name=_SCHEDULER,
        containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
    )
