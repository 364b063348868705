"""The quota of a pod that looks for victims on nodes: its own quota's pods go first, and they must make room there too."""

from collections.abc import Collection, Mapping

from services.scheduler.state.quota_view import QuotaView


class OwnQuota:
    """The quota of a pod that looks for victims, of whose pods alone they are to be."""

    def __init__(self, view: QuotaView, quota: str, short: Mapping[str, int]) -> None:
        """Of a quota that is short of so much for the pod."""
        self._view, self._quota, self._short = view, quota, short

    def holds(self, uid: str) -> bool:
        """Whether a pod is charged to the quota and may be preempted in it."""
        entry = self._view.pods.get(uid)
        return entry is not None and entry.quota == self._quota and entry.charged and entry.preemptible

    def fits_without(self, gone: Collection[str]) -> bool:
        """Whether there is room in it once these pods of it are gone."""
        pods = self._view.pods
        return all(sum(pods[uid].request.get(name, 0) for uid in gone) >= size for name, size in self._short.items())
