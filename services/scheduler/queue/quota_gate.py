"""The pods that their quota refused, kept from the queue until there may be room for them.

Who is let through follows from the state: of the pods that were refused before the last change in their quota, in the order of the queue,
as many as there is room for. So a place that comes free lets one pod be tried, not ten thousand.
"""

from collections.abc import Iterator

from services.scheduler.state.pod_record import PodRecord
from services.scheduler.state.quota_reasons import waits_for_ledger, waits_for_quota
from services.scheduler.state.quota_view import QuotaView
from shared.domain.amounts import Amounts

MOST_REFUSED = 64
"""So many pods in a row without room end the search in a quota; smaller ones behind them come with the next change."""


class QuotaGate:
    """Follows one view of quota, for one index."""

    def __init__(self, view: QuotaView) -> None:
        self._view = view
        self._blocked: dict[str, PodRecord] = {}
        self._of_quota: dict[str, dict[str, None]] = {}
        self._where: dict[str, str] = {}
        self._through: dict[str, dict[str, None]] = {}
        self._saw: dict[str, int] = {}
        self._due: dict[str, None] = {}

    def place(self, uid: str, pod_record: PodRecord | None, eviction_refused_at: int) -> tuple[PodRecord | None, int]:
        """What the queue is told of a pod: nothing of one that waits for room; of one that may have room, or waits for the ledger, that
        it has to be tried once its backoff is over.

        Args:
            pod_record: None when it is gone.
            eviction_refused_at: what the queue would be told otherwise: when a pod that was to make room for it was last allowed to stay.
        """
        if pod_record is None or not pod_record.attempts or not waits_for_quota(pod_record.reasons):
            self._leave(uid)
            if pod_record is not None and pod_record.attempts and waits_for_ledger(pod_record.reasons):
                return pod_record, pod_record.saw + 1
            return pod_record, eviction_refused_at
        self._enter(uid, pod_record)
        has_new_request = pod_record.changed_seq > pod_record.saw
        if has_new_request or uid in self._through.get(self._where[uid], {}):
            return pod_record, pod_record.saw + 1
        return (pod_record, eviction_refused_at) if eviction_refused_at > pod_record.saw else (None, 0)

    def changed(self) -> list[str]:
        """Pods, by uid, of which `place` says something else than before."""
        view = self._view
        for name in view.dirty:
            if name in self._of_quota:
                self._due[name] = None
            if name in self._blocked:
                self._enter(name, self._blocked[name])
        if view.dirty and view.rules is not None and view.rules.check_parents:
            self._due.update(dict.fromkeys(self._of_quota))  # any of them may be above
        view.dirty.clear()
        moved: list[str] = []
        for quota in self._due:
            before = self._through.get(quota, {})
            after = dict.fromkeys(self._let_through(quota))
            if before != after:
                self._through[quota] = after
                moved += [uid for uid in {**before, **after} if (uid in before) != (uid in after)]
        self._due.clear()
        return moved

    def _let_through(self, quota: str) -> Iterator[str]:
        view = self._view
        freed = view.freed_at(quota)
        taken: dict[str, Amounts] = {}
        np_taken: dict[str, Amounts] = {}
        refused = 0
        for uid in sorted(self._of_quota.get(quota, ()), key=self._order):
            entry, pod_record = view.pods.get(uid), self._blocked[uid]
            if entry is None:
                continue
            is_new = max(freed, entry.since) > pod_record.saw_quota
            has_room = is_new and view.has_room(entry, taken, np_taken)
            if has_room or pod_record.nominated:
                view.take(entry, taken, np_taken)  # what comes free is kept for whom it was made, until it is enough
            if has_room:
                yield uid
            elif is_new:
                refused += 1
                if refused >= MOST_REFUSED:
                    return

    def _order(self, uid: str) -> tuple[int, int, str]:
        pod_record = self._blocked[uid]
        return (-pod_record.pod_class.priority if pod_record.pod_class else 0, pod_record.since, uid)

    def _enter(self, uid: str, pod_record: PodRecord) -> None:
        entry = self._view.pods.get(uid)
        quota = entry.quota if entry else ""
        if self._where.get(uid) != quota:
            self._leave(uid)
            self._where[uid] = quota
            self._of_quota.setdefault(quota, {})[uid] = None
        self._blocked[uid] = pod_record
        if self._saw.get(uid) != pod_record.saw_quota:
            self._saw[uid] = pod_record.saw_quota
            self._due[quota] = None

    def _leave(self, uid: str) -> None:
        if uid not in self._blocked:
            return
        del self._blocked[uid]
        self._saw.pop(uid, None)
        quota = self._where.pop(uid)
        self._of_quota[quota].pop(uid)
        self._through.get(quota, {}).pop(uid, None)
        if not self._of_quota[quota]:
            del self._of_quota[quota]
            self._through.pop(quota, None)
        self._due[quota] = None
