"""The GPUs that the pods of a cluster could have at most: the linear program of `cli/packing/ceiling.py` for its nodes.

The placed pods have to be placed, wherever; the waiting pods and more of the same mix may be, until pods worth 130 % of
the GPUs have arrived, as in the published experiment (docs/devices.md).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cli.devices.gpu_workload import FreeNode, WorkloadType
from cli.devices.listed_devices import PERCENT, GpuSums, Optimum
from cli.packing.ceiling import NodeGroup, PodGroup, ceiling_percent, is_available
from services.scheduler.cache.nodes import NodeTable

ARRIVE_PERCENT = 130


class _Equal(NamedTuple):
    """The terms in which nodes of a group are equal."""

    cpu_milli: int
    memory: int
    gpus: int
    admits: tuple[bool, ...]


def optimum_of(
    table: NodeTable,
    nodes: Sequence[FreeNode],
    placed: Mapping[WorkloadType, int],
    waiting: Mapping[WorkloadType, int],
    sums: GpuSums,
) -> tuple[Optimum | None, str]:
    """Returns the optimum, or None and why it is not known.

    Args:
        nodes: those with GPUs.
        placed: pods on them, with and without GPUs.
    """
    if not is_available():
        return None, "the solver HiGHS is not installed: pip install 'koordstream[ceiling]'"
    if sums.usable is None:
        return None, "no pod requests GPUs"
    types = sorted({*placed, *waiting}, key=lambda each: (each.amounts, sorted(each.rows)))
    groups: dict[_Equal, list[int]] = {}
    for node in nodes:
        cpu, memory = (int(table.allocatable[node.row, at]) for at in (0, 1))
        admits = tuple(node.row in each.rows for each in types)
        groups.setdefault(_Equal(cpu, memory, len(node.gpus), admits), []).append(node.row)
    of_nodes = [NodeGroup(len(rows), *each[:3]) for each, rows in groups.items()]
    arrived = sum(_percent(each) * number for of in (placed, waiting) for each, number in of.items())
    more = max(0.0, sums.gpus * ARRIVE_PERCENT / arrived - 1) if arrived else 0.0
    of_pods = [
        PodGroup(
            *each.amounts,
            frozenset(k for k, group in enumerate(groups) if group.admits[at]),
            placed.get(each, 0),
            waiting.get(each, 0) + more * (placed.get(each, 0) + waiting.get(each, 0)) * (each.amounts.gpus > 0),
        )
        for at, each in enumerate(types)
    ]
    found = ceiling_percent(of_nodes, of_pods)
    if found is None:
        return None, _why_not_placeable(sums)
    gpus = found / PERCENT
    return Optimum(gpus, max(0.0, gpus - sums.allocated - sums.usable)), ""


def _why_not_placeable(sums: GpuSums) -> str:
    """Returns why not all placed pods could be placed anew: what they have of unhealthy GPUs counts as theirs."""
    if sums.allocated > sums.gpus:
        unhealthy = f"; {sums.unhealthy} more are unhealthy" if sums.unhealthy else ""
        return f"the placed pods have {sums.allocated:g} GPUs, and the nodes offer {sums.gpus} healthy ones{unhealthy}"
    return "the placed pods have more CPU, memory or GPUs of a model than the nodes offer"


def _percent(each: WorkloadType) -> int:
    return each.amounts.gpus * each.amounts.share
