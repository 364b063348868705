"""Free GPUs of nodes that pods of a type cannot use: the fragmentation of the cluster for this type.

    usable(type) = sum over its nodes of min(by GPUs, by cpu, by memory) * gpus * share
    by GPUs      = sum_g floor(free[g] / share) for one GPU, else floor(number of g with free[g] >= share / gpus)
    fragmented   = free - usable

Source: the measure is that of GpuPacking (kernels/gpu_fragments.py), for one type at a time.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


class FreeAmounts(NamedTuple):
    """Free amounts of nodes.

    Attributes:
        cpu_milli, memory: int64[nodes], memory in bytes.
        gpus: int64[nodes, GPUs], percent that is free of each; 0 where there is none.
        models: of each node's GPUs.
    """

    cpu_milli: Int64
    memory: Int64
    gpus: Int64
    models: tuple[str, ...]


class PackedType(NamedTuple):
    """Equal pods.

    Attributes:
        gpus, share: GPUs of each pod, and the percent of each.
        models: of the GPUs; empty for any.
    """

    cpu_milli: int
    memory: int
    gpus: int
    share: int
    models: tuple[str, ...]


def usable_percent(free: FreeAmounts, each: PackedType) -> int:
    """Returns the free GPU capacity that pods of one type can use, in percent of one GPU."""
    if each.gpus == 1:
        pods = (free.gpus // each.share).sum(axis=1)
    else:
        pods = (free.gpus >= each.share).sum(axis=1) // each.gpus
    for left, size in ((free.cpu_milli, each.cpu_milli), (free.memory, each.memory)):
        if size:
            pods = np.minimum(pods, left // size)
    if each.models:
        pods = np.where([model in each.models for model in free.models], pods, 0)
    return int(pods.sum()) * each.gpus * each.share


def free_percent(free: FreeAmounts) -> int:
    """Returns the free GPU capacity, in percent of one GPU."""
    return int(free.gpus.sum())
