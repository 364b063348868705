"""The generated objects of a new cluster: each is a function of the seed and of its number."""

from services.simulator.kubelet.pod_lifecycle import RUNS_FOR
from services.simulator.kubelet.usage_reports import LOAD
from services.simulator.seeded_random import pick
from services.simulator.settings import SimulatorSettings
from services.simulator.state import ARRIVAL
from shared.domain import priority, qos
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, Quantities, ResourceRequirements

NAMESPACE = "default"
IMAGE = "registry.k8s.io/pause:3.10"

LS_SIZES = ((500, 1), (1000, 2), (2000, 4), (4000, 8))
"""Sizes of LS pods: milli-cores and GiB."""

BATCH_SIZES = ((500, 1), (1000, 1), (2000, 4))
"""Sizes of batch pods."""

CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
SYSTEM_CLASSES = {"system-cluster-critical": priority.SYSTEM_CRITICAL, "system-node-critical": 2_000_001_000}


def namespaces() -> list[dict[str, object]]:
    """Returns the namespaces of every cluster."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}
        for name in ("default", "kube-system", "koordinator-system")
    ]


def priority_classes() -> list[dict[str, object]]:
    """Returns the PriorityClasses of Kubernetes itself and of an installed Koordinator. Source: spec/api.md 3."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value in (SYSTEM_CLASSES | CLASSES).items()
    ]


def node(number: int, settings: SimulatorSettings) -> Node:
    """Returns node number `number`, from 0. Hot nodes are spread evenly over the numbers."""
    name = f"node-{number:04d}"
    hot = (number + 1) * settings.hot_percent // 100 > number * settings.hot_percent // 100
    load_percent = 55 + pick(settings.seed, number, "load", 21) if hot else 3 + pick(settings.seed, number, "load", 6)
    capacity: Quantities = {
        "cpu": str(settings.node_cpu),
        "memory": f"{settings.node_memory_gib}Gi",
        "pods": str(settings.node_pods),
    }
    if settings.batch_capacity_percent:
        free_percent = min(settings.batch_capacity_percent, 100 - load_percent)
        capacity[priority.resource_of(priority.Priority.BATCH, "cpu")] = str(settings.node_cpu * 10 * free_percent)
        memory = (settings.node_memory_gib << 30) * free_percent // 100
        capacity[priority.resource_of(priority.Priority.BATCH, "memory")] = str(memory)
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return Node(
        metadata=Metadata(name=name, labels=labels, annotations={LOAD: str(load_percent)}),
        status=NodeStatus(capacity=capacity, allocatable=capacity),
    )


def pod(number: int, settings: SimulatorSettings) -> Pod:
    """Returns pod number `number`, from 0: an LS service, or batch work that ends."""
    seed = settings.seed
    batch = pick(seed, number, "batch", 100) < settings.batch_percent
    sizes = BATCH_SIZES if batch else LS_SIZES
    cpu_milli, memory_gib = sizes[pick(seed, number, "size", len(sizes))]
    annotations = {ARRIVAL: str(number)}
    if batch and settings.pods_run_s:
        run_percent = 50 + pick(seed, number, "run", 101)
        annotations[RUNS_FOR] = f"{settings.pods_run_s * run_percent // 100}s"
    resources: Quantities = {"cpu": f"{cpu_milli}m", "memory": f"{memory_gib}Gi"}
    if batch and settings.batch_capacity_percent:
        resources = {
            priority.resource_of(priority.Priority.BATCH, "cpu"): str(cpu_milli),
            priority.resource_of(priority.Priority.BATCH, "memory"): f"{memory_gib}Gi",
        }
    kind, class_ = ("batch", "koord-batch") if batch else ("web", "koord-prod")
    return Pod(
        metadata=Metadata(
            name=f"{kind}-{number:05d}",
            namespace=NAMESPACE,
            labels={"app": kind, qos.LABEL: "BE" if batch else "LS"},
            annotations=annotations,
        ),
        spec=PodSpec(
            scheduler_name=settings.scheduler_name,
            priority_class_name=class_,
            containers=(
                Container(name=kind, image=IMAGE, resources=ResourceRequirements(requests=resources, limits=resources)),
            ),
        ),
    )


def arrival_ns(number: int, settings: SimulatorSettings, began_ns: int) -> int | None:
    """Returns the creation instant of generated pod `number`; None when there is none of that number.

    Args:
        number: of the pod, from 0.
        settings: their number and rate.
        began_ns: creation of the cluster.
    """
    if number >= settings.pods:
        return None
    wait_s = settings.pods_after_s + (number / settings.pods_per_s if settings.pods_per_s else 0)
    return began_ns + int(wait_s * SECOND)
