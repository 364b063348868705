"""Which refused pods a cycle tries again: those since whose refusal something changed that lets one of them pass.

Source: spec/scheduler-core.md 1.4.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.scheduling_cache import SchedulingCache
from services.scheduler.queue.scheduling_queue import BinKey, PoolKey
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PluginReason

EXACT_CLASSES = 64
"""Up to so many refused classes are judged on what changed before one of their pods is tried; beyond, a pod tries it."""


def bins_to_requeue(cache: SchedulingCache, feasible: Callable[[PodClass], NDArray[Any]]) -> Sequence[BinKey | PoolKey]:
    """The refused pods to try.

    Every change of the right kind counts when there are many classes. For a few, they are judged anew and only
    changes of nodes that would take them count: a change that queueing_hints nothing is not worth a line in the log.

    Args:
        feasible: rows of the nodes that would take a pod of a class.
    """
    bins, classes = _touched(cache)
    if len(classes) > EXACT_CLASSES:
        return bins
    view, table, queue = cache.view, cache.table, cache.queue
    changed, alive = table.changed[: table.size], table.alive[: table.size]
    cured: dict[tuple[PodClass, tuple[PluginReason, ...]], tuple[int, NDArray[Any]]] = {}
    pools = [PoolKey(bin_, pod_class) for bin_ in bins for pod_class in queue.pod_classes(bin_)]
    for bin_, pod_class in pools:
        reasons = bin_.reasons
        if (pod_class, reasons) in cured:
            continue
        profile = cache.profiles[pod_class.scheduler]
        kinds = sorted(profile.queueing_hints(reasons))
        open_ = feasible(pod_class)
        # What a wide plugin refuses, a change on a node that itself stays closed may have opened elsewhere.
        there = alive if profile.reaches_far(reasons) else open_
        last = int(changed[there][:, kinds].max(initial=0))
        if len(open_):
            cured[pod_class, reasons] = max(last, view.released_seq, _around(cache, kinds)), there
        else:
            cured[pod_class, reasons] = -1, open_

    def is_cured(pool: PoolKey) -> bool:
        last, there = cured[pool.pod_class, pool.bin.reasons]
        saw_reports = pool.bin.saw_reports
        return last > pool.bin.saw or (saw_reports is not None and bool(table.reported_since(saw_reports)[there].any()))

    return [pool for pool in pools if is_cured(pool)]


def _touched(cache: SchedulingCache) -> tuple[list[BinKey], dict[PodClass, None]]:
    """The bins since whose refusal something of the right kind changed anywhere, and their classes, or more than EXACT_CLASSES of them."""
    view, table, queue = cache.view, cache.table, cache.queue
    bins, classes = list[BinKey](), dict[PodClass, None]()
    if not (waiting := queue.bins()):
        return bins, classes
    changed, alive = table.changed[: table.size], table.alive[: table.size]
    newest_by_kind = np.where(alive[:, None], changed, 0).max(axis=0, initial=0)
    newest: dict[tuple[str, tuple[PluginReason, ...]], int] = {}
    for bin_ in waiting:
        group = bin_.scheduler, bin_.reasons
        if group not in newest:
            kinds = sorted(cache.profiles[bin_.scheduler].queueing_hints(bin_.reasons))
            newest[group] = max(int(newest_by_kind[kinds].max(initial=0)), view.released_seq, _around(cache, kinds))
        if newest[group] > bin_.saw or (
            bin_.saw_reports is not None and bool(table.reported_since(bin_.saw_reports)[alive].any())
        ):
            bins.append(bin_)
            if len(classes) <= EXACT_CLASSES:
                classes.update(dict.fromkeys(queue.pod_classes(bin_)))
    return bins, classes


def _around(cache: SchedulingCache, kinds: Sequence[ClusterEvent]) -> int:
    """The newest change of these kinds that is of no node."""
    return max((cache.view.changed[kind] for kind in kinds), default=0)
