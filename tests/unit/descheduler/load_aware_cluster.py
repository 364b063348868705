"""Nodes, pods and reports for tests of LowNodeLoad; cpu in milli-cores, memory in bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.descheduler.load_aware.anomaly_detector import Detector
from services.descheduler.load_aware.arguments import LowNodeLoadArgs, read_args
from services.descheduler.load_aware.balance import BalanceResult, balance
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode, measured, pods_of_node
from services.descheduler.state.measured_nodes import pod_on_node
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeSpec
from shared.kube.pod import Container, Pod, PodSpec, PodStatus
from shared.kube.pod import ResourceRequirements as Resources

GIB = 1 << 30
NOW_NS = 1_780_000_000 * SECOND
CAPACITY = {"cpu": 32_000, "memory": 128 * GIB, "pods": 110}


def args(**given: Any) -> LowNodeLoadArgs:
    """Arguments of the plugin, by their names in Python; every high node is anomalous at once."""
    condition = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}
    return read_args({"anomalyCondition": condition, **given}, "args")


def pod(
    name: str, *, priority: int | None = 9500, requests: Mapping[str, str] | None = None, **given: Any
) -> PodOnNode:
    """A running pod in namespace `default`; further fields are those of its metadata."""
    metadata = Metadata(name=name, namespace="default", uid=name, **given)
    containers = (Container(name="c", resources=Resources(requests=dict(requests or {}))),)
    spec = PodSpec(priority=priority, containers=containers)
    return pod_on_node(Pod(metadata=metadata, spec=spec, status=PodStatus(phase="Running")))


def node(
    name: str,
    cpu: int,
    memory: int = 0,
    pods: Sequence[tuple[PodOnNode, int, int]] = (),
    *,
    age_s: int = 0,
    unschedulable: bool = False,
    capacity: Mapping[str, int] = CAPACITY,
) -> MeasuredNode:
    """A node with this measured usage, of which its pods, each with its cpu and memory, have a part."""
    system = {"cpu": cpu - sum(each[1] for each in pods), "memory": memory - sum(each[2] for each in pods)}
    usage = {each.key: {"cpu": used_cpu, "memory": used_memory} for each, used_cpu, used_memory in pods}
    on_node = [each for each, _, _ in pods]
    known = Node(metadata=Metadata(name=name), spec=NodeSpec(unschedulable=unschedulable))
    return measured(known, (capacity, capacity), pods_of_node(on_node), system, usage, NOW_NS - age_s * SECOND)


class Accepts:
    """An evictor that accepts every pod.

    Attributes:
        evicted: names of pods, in order. reasons: of each.
    """

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.reasons: list[str] = []

    def filter(self, _: PodOnNode) -> bool:
        """Lets every pod move."""
        return True

    def is_exhausted(self) -> bool:
        """There is no limit."""
        return False

    def evict(self, pod: PodOnNode, _: str, reason: str) -> bool:
        """Notes the pod."""
        self.evicted.append(pod.pod.metadata.name)
        self.reasons.append(reason)
        return True


def run(
    given: LowNodeLoadArgs,
    nodes: Sequence[MeasuredNode],
    detectors: tuple[dict[str, Detector], dict[str, Detector]] = ({}, {}),
    now_ns: int = NOW_NS,
) -> tuple[BalanceResult, Accepts]:
    """One cycle."""
    evictor = Accepts()
    return balance(given, nodes, detectors, evictor, now_ns), evictor
