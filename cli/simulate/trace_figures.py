"""The figures of a trace's run: allocation of GPUs as pods arrive, fragmentation by type of pod, and the ceiling."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from cli.packing.ceiling import NodeGroup, PodGroup, ceiling_percent
from cli.packing.fragmentation import FreeAmounts, PackedType, free_percent, usable_percent
from cli.simulate.openb_trace import MODEL_LABEL, gpu_milli_of, type_of_pod
from cli.simulate.policies import GPU_MILLI
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

REQUIRED_PERCENT = 90
"""Pods that have to be placed for the ceiling: those up to this share of the GPUs, in the order of arrival."""
_MILLI_OF_PERCENT = 10


class Allocations(msgspec.Struct, frozen=True):
    """GPUs of placed pods in percent of all, once pods worth so many percent had arrived; None where fewer arrive.

    Attributes:
        gpuless_rejected: rejected pods that request no GPU.
    """

    at_100: float | None
    at_130: float | None
    gpuless_rejected: int


class Fragmentation(msgspec.Struct, frozen=True):
    """The use that pods with the same request for GPUs have for those that are free at the end.

    Attributes:
        gpus, share: of each pod, and the percent of each GPU.
        models: that it may have; empty for any.
        pods: that arrived.
        usable_percent, fragmented_percent: the free GPUs that such pods can use, and that they cannot, in percent of
            all GPUs; a mean over these pods, which differ in CPU and memory.
    """

    gpus: int
    share: int
    models: tuple[str, ...]
    pods: int
    usable_percent: float
    fragmented_percent: float


def allocations(capacity: int, pods: Sequence[Pod], placed: Mapping[str, str]) -> Allocations:
    """Returns the allocation as pods arrive.

    Args:
        capacity: of all GPUs, in thousandths of one.
        pods: in the order of arrival.
        placed: `namespace/name` -> node.
    """
    arrived = allocated = gpuless = 0
    found: dict[int, float] = {}
    for pod in pods:
        milli, is_placed = gpu_milli_of(pod), pod.metadata.key in placed
        arrived += milli
        allocated += milli if is_placed else 0
        gpuless += not milli and not is_placed
        for percent in (100, 130):
            if percent not in found and arrived >= capacity * percent // 100:
                found[percent] = round(100 * allocated / capacity, 2)
    return Allocations(found.get(100), found.get(130), gpuless)


def fragmentation(
    nodes: Sequence[Node], pods: Sequence[Pod], placed: Mapping[str, str], minors: Mapping[str, Sequence[int]]
) -> list[Fragmentation]:
    """Returns the fragmentation for each request for GPUs, the most frequent first.

    Args:
        placed: `namespace/name` -> node.
        minors: `namespace/name` -> its GPUs.
    """
    free = _free(nodes, pods, placed, minors)
    left, capacity = free_percent(free), sum(_gpus(node) for node in nodes)
    counted = Counter(each for pod in pods if (each := PackedType(*type_of_pod(pod))).gpus)
    sums: dict[tuple[int, int, tuple[str, ...]], list[int]] = {}
    for each, number in sorted(counted.items()):
        total = sums.setdefault((each.gpus, each.share, each.models), [0, 0])
        total[0] += number
        total[1] += number * usable_percent(free, each)
    return [
        Fragmentation(
            gpus, share, models, number, round(used / number / capacity, 3), round((left - used / number) / capacity, 3)
        )
        for (gpus, share, models), (number, used) in sorted(sums.items(), key=lambda each: (-each[1][0], each[0]))
    ]


def _free(
    nodes: Sequence[Node], pods: Sequence[Pod], placed: Mapping[str, str], minors: Mapping[str, Sequence[int]]
) -> FreeAmounts:
    rows = {node.metadata.name: row for row, node in enumerate(nodes)}
    offered = [amounts(node.status.allocatable or {}) for node in nodes]
    cpu, memory = (np.array([each.get(name, 0) for each in offered], np.int64) for name in ("cpu", "memory"))
    gpus = np.zeros((len(nodes), max(map(_gpus, nodes), default=0)), np.int64)
    for row, node in enumerate(nodes):
        gpus[row, : _gpus(node)] = 100
    for pod in pods:
        if (name := placed.get(pod.metadata.key)) is None:
            continue
        row, each = rows[name], PackedType(*type_of_pod(pod))
        cpu[row] -= each.cpu_milli
        memory[row] -= each.memory
        for minor in minors.get(pod.metadata.key, ()):
            gpus[row, minor] -= each.share
    models = tuple((node.metadata.labels or {}).get(MODEL_LABEL, "") for node in nodes)
    return FreeAmounts(cpu, memory, gpus, models)


def ceiling(nodes: Sequence[Node], pods: Sequence[Pod]) -> float | None:
    """Returns the bound of cli/packing/ceiling.py in percent of all GPUs: the pods of the first 90 % of arrivals are
    placed, and of the others those that are best. None where the former cannot all be placed.

    Raises:
        NoSolver: HiGHS is not installed.
    """
    capacity = sum(_gpus(node) for node in nodes)
    by_group = Counter(_group_of(node) for node in nodes)
    of_nodes = [NodeGroup(number, *each[:3]) for each, number in by_group.items()]
    models = [each[3] for each in by_group]
    required: Counter[PackedType] = Counter()
    more: Counter[PackedType] = Counter()
    arrived = 0
    for pod in pods:
        arrived += gpu_milli_of(pod)
        is_required = arrived <= capacity * REQUIRED_PERCENT * _MILLI_OF_PERCENT
        (required if is_required else more)[PackedType(*type_of_pod(pod))] += 1
    of_pods = [
        PodGroup(
            *each[:4],
            frozenset(k for k, model in enumerate(models) if not each.models or model in each.models),
            required[each],
            more[each],
        )
        for each in sorted({*required, *more})
    ]
    found = ceiling_percent(of_nodes, of_pods)
    return None if found is None else round(found / capacity, 2)


def _group_of(node: Node) -> tuple[int, int, int, str]:
    offered = amounts(node.status.allocatable or {})
    return (
        offered.get("cpu", 0), offered.get("memory", 0), _gpus(node), (node.metadata.labels or {}).get(MODEL_LABEL, "")
    )  # fmt: skip


def _gpus(node: Node) -> int:
    return int((node.status.allocatable or {}).get(GPU_MILLI, "0")) // 1000


def fragmentation_lines(found: Sequence[Fragmentation], most: int = 10) -> Iterator[tuple[str, str]]:
    """Yields a line for each of the most frequent requests."""
    for each in found[:most]:
        what = f"{each.share} % of a GPU" if each.share < 100 else f"{each.gpus} GPUs" if each.gpus > 1 else "1 GPU"
        of = f" ({' or '.join(each.models)})" if each.models else ""
        yield f"  {what}{of}", f"{each.fragmented_percent:g} %"
