"""Simulated NodeMetric reports: usage in proportion to requests, with noise, and load outside of pods.

Every sample is a function of the object and of the time, so no state is needed between two reports: a report computes
the samples of its windows. Amounts are integers: milli-cores and bytes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.simulator.kubelet.pod_lifecycle import second_text
from services.simulator.seeded_random import splitmix_array, text_hash
from shared.domain.pod_requests import pod_requests, whole
from shared.domain.priority import Priority, priority, resource_of
from shared.domain.qos import qos
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import AggregatedUsage, Node, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

LOAD = "simulator.koordinator.sh/load-percent"
"""Annotation of a node: cpu that is used outside of pods, in percent of its capacity. Change it and the node runs hot."""

USES = "simulator.koordinator.sh/usage-percent"
"""Annotation of a pod: cpu it uses, in percent of its request; else 20 to 50 for prod and mid, 70 to 100 for the others."""

SAMPLE_S = 15
WINDOWS = (("5m0s", 300), ("10m0s", 600), ("30m0s", 1800))
PERCENTILES = (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99))
SAMPLES = WINDOWS[-1][1] // SAMPLE_S

IDLE_LOAD_PERCENT = 3
DEFAULT_USAGE = {"cpu": 100, "memory": 200 << 20}
"""Upper bound of the usage of a pod without requests: milli-cores and bytes."""

CPU_SWING, MEMORY_SWING, LOAD_SWING = 200, 20, 30
"""Largest deviation of a sample from the mean, in thousandths."""

Samples = NDArray[np.int64]


class _PodLoad(NamedTuple):
    pod: Pod
    seed: int
    cpu: int
    memory: int
    started_ns: int


def reports(
    nodes: Sequence[Node], pods: Mapping[str, Sequence[Pod]], *, average_s: int, now_ns: int
) -> list[NodeMetricStatus]:
    """Returns the status of each node's NodeMetric.

    Args:
        nodes: the nodes with a due report.
        pods: node name -> pods bound to it; running pods have usage.
        average_s: averaging window.
        now_ns: the instant of the report.
    """
    loads = [[_load(pod) for pod in pods.get(node.metadata.name, ()) if _runs(pod)] for node in nodes]
    flat = [load for each in loads for load in each]
    at = now_ns // SECOND - np.arange(SAMPLES, dtype=np.int64) * SAMPLE_S  # [samples], the newest first, seconds
    cpu, memory, running = _pod_samples(flat, at)
    ends = np.cumsum([len(each) for each in loads])
    node_cpu, node_memory = _node_samples(nodes, at, _grouped(cpu, ends), _grouped(memory, ends))
    recent = max(1, average_s // SAMPLE_S)
    counted = np.maximum(running[:, :recent].sum(axis=1), 1)
    pod_cpu, pod_memory = cpu[:, :recent].sum(axis=1) // counted, memory[:, :recent].sum(axis=1) // counted
    made = []
    for index, each in enumerate(loads):
        last = int(ends[index])
        own = slice(last - len(each), last)
        usage = (int(node_cpu[index, :recent].sum()) // recent, int(node_memory[index, :recent].sum()) // recent)
        system = (max(0, usage[0] - int(pod_cpu[own].sum())), max(0, usage[1] - int(pod_memory[own].sum())))
        made.append(
            NodeMetricStatus(
                update_time=second_text(now_ns),
                node_metric=NodeUsage(
                    node_usage=_amounts(*usage),
                    aggregated_node_usages=_aggregated(node_cpu[index], node_memory[index]),
                    system_usage=_amounts(*system),
                ),
                pods_metric=tuple(
                    _pod_usage(load.pod, int(used_cpu), int(used_memory))
                    for load, used_cpu, used_memory in zip(each, pod_cpu[own], pod_memory[own], strict=True)
                ),
            )
        )
    return made


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.status.start_time is not None


def _load(pod: Pod) -> _PodLoad:
    """Returns the pod's mean usage, by its requests and its priority class."""
    class_ = priority(pod)
    requests = whole(pod_requests(pod))
    seed = text_hash(pod.metadata.uid)
    low, high = (20, 50) if class_ in {Priority.PROD, Priority.MID, Priority.NONE} else (70, 100)
    annotated = (pod.metadata.annotations or {}).get(USES, "")
    percent = int(annotated) if annotated.isdecimal() else low + seed % (high - low + 1)
    mean = {}
    for resource, default in DEFAULT_USAGE.items():
        mean[resource] = requests.get(resource_of(class_, resource)) or requests.get(resource) or default
    started_ns = instant_ns(pod.status.start_time or "")
    return _PodLoad(pod, seed, mean["cpu"] * percent // 100, mean["memory"] * (60 + seed % 31) // 100, started_ns)


def _pod_samples(loads: Sequence[_PodLoad], at: NDArray[np.int64]) -> tuple[Samples, Samples, NDArray[np.bool_]]:
    """Returns cpu, memory and a running flag of each pod at each instant; each [pods, samples]."""
    seeds = np.array([load.seed for load in loads], dtype=np.uint64)
    cpu = np.array([load.cpu for load in loads], dtype=np.int64)
    memory = np.array([load.memory for load in loads], dtype=np.int64)
    started = np.array([load.started_ns // SECOND for load in loads], dtype=np.int64)
    running = started[:, None] <= at[None, :]
    swing = _swing(seeds, at)
    return (
        np.where(running, cpu[:, None] * (1000 + swing * CPU_SWING // 1000) // 1000, 0),
        np.where(running, memory[:, None] // 1000 * (1000 + swing * MEMORY_SWING // 1000), 0),
        running,
    )


def _node_samples(
    nodes: Sequence[Node], at: NDArray[np.int64], pod_cpu: Samples, pod_memory: Samples
) -> tuple[Samples, Samples]:
    """Returns cpu and memory of each node at each instant, at most its capacity; each [nodes, samples]."""
    capacity = [amounts(node.status.capacity or {}) for node in nodes]
    cpu = np.array([each.get("cpu", 0) for each in capacity], dtype=np.int64)
    memory = np.array([each.get("memory", 0) for each in capacity], dtype=np.int64)
    load = np.array([_load_percent(node) for node in nodes], dtype=np.int64)
    seeds = np.array([text_hash(node.metadata.name) for node in nodes], dtype=np.uint64)
    swing = 1000 + _swing(seeds, at) * LOAD_SWING // 1000
    outside_cpu = (cpu * load // 100)[:, None] * swing // 1000
    outside_memory = (memory * load // 200)[:, None] // 1000 * swing
    return np.minimum(outside_cpu + pod_cpu, cpu[:, None]), np.minimum(outside_memory + pod_memory, memory[:, None])


def _load_percent(node: Node) -> int:
    annotated = (node.metadata.annotations or {}).get(LOAD, "")
    return int(annotated) if annotated.isdecimal() else IDLE_LOAD_PERCENT


def _swing(seeds: NDArray[np.uint64], at: NDArray[np.int64]) -> Samples:
    """Returns the noise of each object at each instant, -1000 to 1000; [objects, samples]."""
    step = splitmix_array((at // SAMPLE_S).astype(np.uint64))
    mixed = splitmix_array(seeds[:, None] ^ step[None, :])
    return (mixed % np.uint64(2001)).astype(np.int64) - 1000


def _grouped(samples: Samples, ends: NDArray[np.int64]) -> Samples:
    """Sums consecutive rows: [pods, samples] -> [nodes, samples]."""
    totals = np.vstack([np.zeros((1, samples.shape[1]), dtype=np.int64), np.cumsum(samples, axis=0)])
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    grouped: Samples = totals[ends] - totals[starts]
    return grouped


def _aggregated(cpu: Samples, memory: Samples) -> tuple[AggregatedUsage, ...]:
    """Returns mean and percentiles (nearest rank) over each window."""
    windows = []
    for duration, length_s in WINDOWS:
        count = length_s // SAMPLE_S
        sorted_cpu, sorted_memory = np.sort(cpu[:count]), np.sort(memory[:count])
        usage = {"avg": _amounts(int(sorted_cpu.sum()) // count, int(sorted_memory.sum()) // count)}
        for name, percent in PERCENTILES:
            rank = -(-percent * count // 100) - 1
            usage[name] = _amounts(int(sorted_cpu[rank]), int(sorted_memory[rank]))
        windows.append(AggregatedUsage(usage=usage, duration=duration))
    return tuple(windows)


def _amounts(cpu_milli: int, memory_bytes: int) -> ResourceMap:
    return ResourceMap(resources={"cpu": f"{cpu_milli}m", "memory": str(memory_bytes)})


def _pod_usage(pod: Pod, cpu_milli: int, memory_bytes: int) -> PodUsage:
    return PodUsage(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        priority=priority(pod).value,
        qos=qos(pod).value,
        pod_usage=_amounts(cpu_milli, memory_bytes),
    )
