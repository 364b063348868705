"""The quota of a preempting pod: victims of the same quota come first, and their eviction must release enough capacity
in it.
"""

from collections.abc import Collection, Mapping

from services.scheduler.state.quota_view import QuotaView


class PreemptorQuota:
    """The quota of a preempting pod, to which its victims are restricted."""

    def __init__(self, view: QuotaView, quota: str, short: Mapping[str, int]) -> None:
        """Takes a quota and the amounts that it lacks for the pod."""
        self._view, self._quota, self._short = view, quota, short

    def holds(self, uid: str) -> bool:
        """Returns True for a preemptible pod that is charged to the quota."""
        entry = self._view.pods.get(uid)
        return entry is not None and entry.quota == self._quota and entry.charged and entry.preemptible

    def fits_without(self, gone: Collection[str]) -> bool:
        """Returns True when the pod fits in the quota without these pods of it."""
        pods = self._view.pods
        return all(sum(pods[uid].request.get(name, 0) for uid in gone) >= size for name, size in self._short.items())
