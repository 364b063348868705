"""The refused pods that a cycle tries again: those for which a cluster event since their refusal may end one of their
reasons.

Source: spec/scheduler-core.md 1.4.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.framework.profile import Profile
from services.scheduler.queue.refused_bins import BinKey, PoolKey
from services.scheduler.queue.scheduling_queue import SchedulingQueue
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_attempts_and_refusals import PluginReason
from services.scheduler.state.pod_equivalence_class import PodClass

EXACT_CLASSES = 64
"""Up to this number of refused classes, a class is evaluated before one of its pods is tried; beyond it, a pod is tried
at once.
"""


class QueueingHints:
    """The queueing hints of all profiles, applied to the refused pods of a queue."""

    def __init__(
        self, cache: ClusterCache, queue: SchedulingQueue, profiles: Mapping[str, Profile], *, plans_starts: bool
    ) -> None:
        """Reads a settled cache; nothing in it may change while the hints are used.

        Args:
            plans_starts: units that fit nowhere have planned starts.
        """
        self._plans_starts = plans_starts
        self._cache = cache
        self._queue = queue
        self._profiles = profiles

    def to_requeue(
        self, feasible: Callable[[PodClass], NDArray[Any]], max_classes: int = EXACT_CLASSES
    ) -> Sequence[BinKey | PoolKey]:
        """Returns the refused pods to try, by bin or by pool.

        With many refused classes, every event of a hinted kind counts. Few classes are evaluated anew, and only events
        on nodes that would admit them count: an event that helps no pod is not worth a line in the log.

        Args:
            feasible: returns the rows of the nodes that would admit a pod of a class.
            max_classes: maximum number of classes to evaluate, at least 1, where other pods wait as well. The next
                cycles evaluate the other classes.
        """
        bins, classes = self._with_events()
        if len(classes) > EXACT_CLASSES:
            return bins
        if len(classes) > max_classes and self._queue.has_active():
            classes = self._share_of_cycle(classes, max_classes)
        table = self._cache.table
        changed, alive = table.changed[: table.size], table.alive[: table.size]
        newest: dict[tuple[PodClass, tuple[PluginReason, ...]], tuple[int, NDArray[Any]]] = {}
        pools = [
            PoolKey(bin_, pod_class)
            for bin_ in bins
            for pod_class in self._queue.pod_classes(bin_)
            if pod_class in classes
        ]
        for bin_, pod_class in pools:
            reasons = bin_.reasons
            if (pod_class, reasons) in newest:
                continue
            profile = self._profiles[pod_class.scheduler]
            kinds = sorted(profile.queueing_hints(reasons))
            open_ = feasible(pod_class)
            # An event on a node that stays closed itself may end a cross-node plugin's reason on another node.
            rows = alive if profile.reaches_far(reasons) else open_
            last = int(changed[rows][:, kinds].max(initial=0))
            newest[pod_class, reasons] = (
                (max(last, self._newest_beyond_nodes(kinds)), rows) if len(open_) else (-1, open_)
            )

        released = self._cache.view.hold_released_seq
        # Where a planned start has ended, a unit that fits nowhere may have one of its own.
        units = frozenset(self._queue.pools_of_groups()) if self._plans_starts else frozenset()

        def has_event(pool: PoolKey) -> bool:
            last, rows = newest[pool.pod_class, pool.bin.reasons]
            saw = pool.bin.saw_reports
            if last > pool.bin.saw or (released > pool.bin.saw_released and (len(rows) or pool in units)):
                return True
            return saw is not None and bool(table.reported_since(saw)[rows].any())

        return [pool for pool in pools if has_event(pool)]

    def _share_of_cycle(self, classes: Iterable[PodClass], count: int) -> dict[PodClass, None]:
        """Returns `count` of the classes. Successive cycles take successive ones, so that each class has its turn.

        Active pods wait too, so that this cycle is recorded and the number of the next one is higher.
        """
        ordered = sorted(classes, key=attrgetter("key"))
        first = self._cache.view.cycle * count % len(ordered)
        return dict.fromkeys((ordered * 2)[first : first + count])

    def _with_events(self) -> tuple[list[BinKey], dict[PodClass, None]]:
        """Returns the bins with an event of a hinted kind on any node since their refusal, and their classes.

        Classes are no longer added once there are more than EXACT_CLASSES.
        """
        table, queue = self._cache.table, self._queue
        bins, classes = list[BinKey](), dict[PodClass, None]()
        if not (waiting := queue.bins()):
            return bins, classes
        changed, alive = table.changed[: table.size], table.alive[: table.size]
        newest_by_kind = np.where(alive[:, None], changed, 0).max(axis=0, initial=0)
        newest: dict[tuple[str, tuple[PluginReason, ...]], int] = {}
        for bin_ in waiting:
            group = bin_.scheduler, bin_.reasons
            if group not in newest:
                kinds = sorted(self._profiles[bin_.scheduler].queueing_hints(bin_.reasons))
                newest[group] = max(int(newest_by_kind[kinds].max(initial=0)), self._newest_beyond_nodes(kinds))
            if (
                newest[group] > bin_.saw
                or self._cache.view.hold_released_seq > bin_.saw_released
                or (bin_.saw_reports is not None and bool(table.reported_since(bin_.saw_reports)[alive].any()))
            ):
                bins.append(bin_)
                if len(classes) <= EXACT_CLASSES:
                    classes.update(dict.fromkeys(queue.pod_classes(bin_)))
        return bins, classes

    def _newest_beyond_nodes(self, kinds: Sequence[ClusterEvent]) -> int:
        """Returns the seq of the newest event of these kinds that belongs to no node, or of a placement that released
        its capacity.
        """
        view = self._cache.view
        return max((view.released_seq, *(view.changed[kind] for kind in kinds)))
