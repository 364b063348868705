"""Capacity in quotas that is kept for nominated pods: their victims have released it, or are about to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_headroom import Entry
from services.scheduler.state.quota_reason_codes import waits_for_quota
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.amounts import Amounts
from shared.events.scheduling import QuotaShort


class NominatedEntry(NamedTuple):
    """A pod for which capacity in its quota is kept."""

    priority: int
    uid: str
    entry: Entry


def nominated_entries(view: SchedulerState, nominated: Iterable[PodRecord]) -> Iterator[NominatedEntry]:
    """Yields those of the nominated pods for which capacity in their quota is released."""
    for pod in nominated:
        entry = entry_of(view, pod) if waits_for_quota(pod.reasons) else None
        if entry is not None:
            yield NominatedEntry(priority_of(pod), pod.uid, entry)


def refused_for_nominated(
    view: SchedulerState, nominated: Iterable[PodRecord], groups: Sequence[Sequence[PodRecord]]
) -> dict[str, QuotaShort]:
    """Returns the pods that would take capacity kept for a nominated pod of their own or of higher priority.

    Args:
        groups: the pods to charge, in the order of their charges; a group is refused as a whole.
    """
    kept = _KeptCapacity(view, nominated)
    return kept.refused(groups) if kept else {}


class _KeptCapacity:
    def __init__(self, view: SchedulerState, nominated: Iterable[PodRecord]) -> None:
        self._view = view
        entries = nominated_entries(view, nominated)
        self._nominated = sorted(entries, key=lambda each: (-each.priority, each.uid))
        self._planned: dict[str, Amounts] = {}
        self._np_planned: dict[str, Amounts] = {}

    def __bool__(self) -> bool:
        return bool(self._nominated)

    def refused(self, groups: Sequence[Sequence[PodRecord]]) -> dict[str, QuotaShort]:
        refused: dict[str, QuotaShort] = {}
        for group in groups:
            short = next((found for pod in group if (found := self._shortage(pod))), None)
            for pod in group:
                if short is not None:
                    refused[pod.uid] = short
                elif (entry := entry_of(self._view, pod)) is not None:
                    self._view.quota.take(entry, self._planned, self._np_planned)
        return refused

    def _shortage(self, pod: PodRecord) -> QuotaShort | None:
        """The shortfall of a pod's quota besides the kept capacity; None where there is none, or the ledger will find
        it.
        """
        quota, entry, priority = self._view.quota, entry_of(self._view, pod), priority_of(pod)
        if entry is None:
            return None
        first = [
            each
            for each in self._nominated
            if each.priority >= priority and each.uid != pod.uid and each.entry.quota == entry.quota
        ]
        if not first or not quota.has_room(entry, self._planned, self._np_planned):
            return None
        with_kept, np_with_kept = copied(self._planned), copied(self._np_planned)
        for each in first:
            quota.take(each.entry, with_kept, np_with_kept)
        short = quota.shortage(entry, with_kept, np_with_kept)
        if short == {}:
            return None
        owner = self._view.pods[first[0].uid].name
        message = (
            f"Insufficient quotas, quotaName: {entry.quota}, the capacity in it is kept for {owner} of priority"
            f" {first[0].priority}"
        )
        return QuotaShort(quota=entry.quota, stage="quota", short=short or {}, message=message)


def entry_of(view: SchedulerState, pod: PodRecord) -> Entry | None:
    """Returns a pod's entry in the ledger, or the one that it will have; None for a pod without a limited quota."""
    if pod.pod_class is None:
        return None
    return view.quota.entry_of(pod.uid, pod.pod_class.namespace, pod.pod_class.labels, pod.pod_class.request)


def priority_of(pod: PodRecord) -> int:
    """Returns a pod's priority; 0 for one that has not been read."""
    return pod.pod_class.priority if pod.pod_class is not None else 0


def copied(sums: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """Returns a copy of amounts by quota."""
    return {quota: dict(sizes) for quota, sizes in sums.items()}
