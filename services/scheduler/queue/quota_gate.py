"""The gate before the queue: pods that their quota refused wait here until there may be capacity for them.

The State determines the admitted pods: of those that were refused before the last change in their quota, in the order
of the queue, as many as fit. So capacity for one pod lets one pod be tried, not ten thousand.
"""

from collections.abc import Iterable, Iterator

from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import waits_for_ledger, waits_for_quota, waits_for_rejected_quota
from services.scheduler.state.quota_view import NO_QUOTA, QuotaView
from shared.domain.amounts import Amounts
from shared.kube.elastic_quota import RESERVED

MOST_REFUSED = 64
"""Number of pods without capacity that ends the search in a quota; smaller pods behind them are admitted with the next
change.
"""


class QuotaGate:
    """The gate of one CycleInputs; it follows one quota view."""

    def __init__(self, view: QuotaView) -> None:
        self._view = view
        self._blocked: dict[str, PodRecord] = {}
        self._of_quota: dict[str, dict[str, None]] = {}
        self._quota_of: dict[str, str] = {}
        self._admitted: dict[str, dict[str, None]] = {}
        self._saw: dict[str, int] = {}
        self._stale: dict[str, None] = {}

    def place(
        self, uid: str, pod_record: PodRecord | None, retry_after: int, *, in_group: bool = False
    ) -> tuple[PodRecord | None, int]:
        """Returns what the queue holds of a pod, and the `cluster` seq after which it is tried again.

        A pod that waits for capacity is kept from the queue: (None, 0). A pod that may fit, or waits for the ledger, is
        tried once its backoff is over; so is one of a group, since capacity for one of them says nothing of the others.

        Args:
            pod_record: None when the pod is deleted, and for one that the queue does not take: capacity would be kept
                for it in vain.
            retry_after: the seq that holds without the gate: see `SchedulingQueue.put`.
            in_group: the pod is placed together with others.
        """
        if pod_record is None or not pod_record.attempts:
            self.leave(uid)
            return pod_record, retry_after
        waits = waits_for_quota(pod_record.reasons)
        if not waits or in_group:
            self.leave(uid)
            if waits or waits_for_ledger(pod_record.reasons):
                return pod_record, pod_record.saw + 1
            return pod_record, retry_after
        self._enter(uid, pod_record)
        has_new_request = pod_record.changed_seq > pod_record.saw
        if has_new_request or uid in self._admitted.get(self._quota_of[uid], {}):
            return pod_record, pod_record.saw + 1
        return (pod_record, retry_after) if retry_after > pod_record.saw else (None, 0)

    def changed(self) -> list[str]:
        """Returns the uids of the pods for which the result of `place` changed."""
        view = self._view
        for name in view.dirty:
            if name in self._of_quota:
                self._stale[name] = None
            if name in self._blocked:
                self._enter(name, self._blocked[name])
        checks_parents = view.rules is not None and view.rules.check_parents
        if view.dirty and checks_parents:
            self._stale.update(dict.fromkeys(self._of_quota))  # any of them may be an ancestor of a changed quota
        self._stale.update(dict.fromkeys(self._crowded(checks_parents=checks_parents)))
        view.dirty.clear()
        view.tightened.clear()
        moved: list[str] = []
        for quota in self._stale:
            before = self._admitted.get(quota, {})
            after = dict.fromkeys(self._admit(quota))
            if before != after:
                self._admitted[quota] = after
                moved += [uid for uid in {**before, **after} if (uid in before) != (uid in after)]
        self._stale.clear()
        return moved

    def _crowded(self, *, checks_parents: bool) -> Iterable[str]:
        """Returns the quotas with admitted pods for which there may be no capacity any more.

        Where none is admitted, less capacity changes nothing: pods that wait are not sorted after each charge.
        """
        view = self._view
        admitting = {quota for quota, uids in self._admitted.items() if uids} if view.tightened else set()
        if not admitting or checks_parents:
            return admitting
        return (above.name for quota in view.tightened for above in view.path(quota) if above.name in admitting)

    def _admit(self, quota: str) -> Iterator[str]:
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
                view.take(
                    entry, taken, np_taken
                )  # released capacity is kept for the pod whose victims released it, until it suffices
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
        quota = entry.quota if entry else NO_QUOTA
        if quota in RESERVED and waits_for_rejected_quota(pod_record.reasons):
            quota = NO_QUOTA  # the default group has it meanwhile, but capacity there does not help
        if self._quota_of.get(uid) != quota:
            self.leave(uid)
            self._quota_of[uid] = quota
            self._of_quota.setdefault(quota, {})[uid] = None
        self._blocked[uid] = pod_record
        if self._saw.get(uid) != pod_record.saw_quota:
            self._saw[uid] = pod_record.saw_quota
            self._stale[quota] = None

    def leave(self, uid: str) -> None:
        """Removes a pod, if it waits here."""
        if uid not in self._blocked:
            return
        del self._blocked[uid]
        self._saw.pop(uid, None)
        quota = self._quota_of.pop(uid)
        self._of_quota[quota].pop(uid)
        self._admitted.get(quota, {}).pop(uid, None)
        if not self._of_quota[quota]:
            del self._of_quota[quota]
            self._admitted.pop(quota, None)
        self._stale[quota] = None
