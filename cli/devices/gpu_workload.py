"""The workload of a cluster's GPUs: the pods that request some, by type; and what pods of these types can use of a node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cli.devices.listed_devices import PERCENT, Stranded
from services.scheduler.plugins.gpu_packing.pod_types import PodType


class WorkloadType(NamedTuple):
    """Pods that are alike.

    Attributes:
        rows: of the nodes with GPUs that their selectors and affinities admit.
    """

    amounts: PodType
    rows: frozenset[int]


class FreeNode(NamedTuple):
    """The free amounts of a node; memory in bytes, of each GPU the percent."""

    row: int
    cpu_milli: int
    memory: int
    gpus: Sequence[int]


def usable_of(node: FreeNode, workload: Mapping[WorkloadType, int]) -> tuple[float, Stranded] | None:
    """Returns the GPUs of a node that pods of the workload can use, and those that they cannot, as means over these pods.

    A type of pods uses what as many of its pods as fit would have: first by the GPUs, then by the CPU, then by the
    memory that is left. None without a workload.
    """
    pods = sum(workload.values())
    if not pods:
        return None
    left = sum(node.gpus)
    used, stranded = 0.0, Stranded()
    for each, number in workload.items():
        share_of_pods = number / pods / PERCENT
        if node.row not in each.rows:
            stranded += Stranded(model=left * share_of_pods)
            continue
        one = each.amounts.gpus * each.amounts.share
        by_cards = _fit(node.gpus, each.amounts)
        by_cpu = min(by_cards, node.cpu_milli // each.amounts.cpu_milli if each.amounts.cpu_milli else by_cards)
        by_memory = min(by_cpu, node.memory // each.amounts.memory if each.amounts.memory else by_cpu)
        used += by_memory * one * share_of_pods
        stranded += Stranded(
            cards=left - by_cards * one, cpu=(by_cards - by_cpu) * one, memory=(by_cpu - by_memory) * one
        ).times(share_of_pods)
    return used, stranded


def _fit(free: Sequence[int], amounts: PodType) -> int:
    if amounts.gpus == 1:
        return sum(each // amounts.share for each in free)
    return sum(each >= amounts.share for each in free) // amounts.gpus


def counted(types: Iterable[WorkloadType]) -> dict[WorkloadType, int]:
    """Counts pods by type: the most frequent first."""
    return dict(Counter(types).most_common())
