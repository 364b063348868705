"""The quotas of a gang for which others would be evicted: none is in vain while its quota has too little for it.

What the quotas lack for all pods together has to be released by victims of the same quota. What the ledger has not
recorded yet does not count: it decides once the pods are placed.
"""

from collections.abc import Collection, Iterable, Sequence

from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_headroom import Entry
from services.scheduler.state.quota_view import QuotaView
from shared.domain.amounts import Amounts

PodsWithClasses = Iterable[tuple[PodRecord, PodClass]]


class QuotaOfGang:
    """The amounts that the quotas of a gang lack for the pods that it needs.

    Attributes:
        is_unresolvable: no eviction helps: a pod is not preemptible, and such pods use up the quota's min.
    """

    def __init__(
        self, quota: QuotaView, needed: PodsWithClasses, placed: PodsWithClasses, evicted: Collection[str]
    ) -> None:
        """Adds up the pods.

        Args:
            needed: of the gang; placed: by this cycle so far.
            evicted: uids of pods that leave their quotas anyway.
        """
        self._quota = quota
        self._evicted = evicted
        self._short: dict[str, Amounts] = {}
        self.is_unresolvable = False
        taken: dict[str, Amounts] = {}
        np_taken: dict[str, Amounts] = {}
        for entry in self._uncharged(placed):
            quota.take(entry, taken, np_taken)
        for entry in self._uncharged(needed):
            # The shortage for this pod and those before it: the last one of a quota is that of all.
            short = quota.shortage(entry, taken, np_taken)
            if short is None:
                self.is_unresolvable = True
                return
            if short:
                before = self._short.get(entry.quota, {})
                self._short[entry.quota] = {
                    name: max(short.get(name, 0), before.get(name, 0)) for name in (*short, *before)
                }
            quota.take(entry, taken, np_taken)

    @property
    def is_short(self) -> bool:
        """Returns True where pods of the gang's quotas have to leave."""
        return not self.fits_without(())

    def holds(self, uid: str) -> bool:
        """Returns True for a preemptible pod that is charged to a quota that lacks something."""
        entry = self._quota.pods.get(uid)
        return entry is not None and entry.quota in self._short and entry.charged and entry.preemptible

    def fits_without(self, gone: Collection[str]) -> bool:
        """Returns True where the quotas have enough for all pods once these pods have left."""
        freed: dict[str, list[Entry]] = {}
        for uid in dict.fromkeys((*gone, *self._evicted)):
            entry = self._quota.pods.get(uid)
            if entry is not None and entry.charged:
                freed.setdefault(entry.quota, []).append(entry)
        return all(
            sum(entry.request.get(name, 0) for entry in freed.get(quota, ())) >= size
            for quota, short in self._short.items()
            for name, size in short.items()
        )

    def _uncharged(self, pods: PodsWithClasses) -> Sequence[Entry]:
        entries = (
            self._quota.entry_of(pod.uid, pod_class.namespace, pod_class.labels, pod_class.request)
            for pod, pod_class in pods
        )
        return [entry for entry in entries if entry is not None and not entry.charged]
