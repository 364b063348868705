"""The scheduler's view of quota: quotas and pods as the ledger recorded them, and ElasticQuotas of `cluster` that it
has yet to read.

Only the ledger decides. The view selects the pods that need a charge, and those refused pods for which there may be
capacity now.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.state.quota_headroom import Entry, QuotaHeadroom
from shared.domain.amounts import mask
from shared.domain.quota_check_options import options_of
from shared.domain.quota_lookup import QuotaLookup
from shared.events import Event, RecordedEvent
from shared.events.log import ConfigApplied
from shared.events.quota import (
    BalancesOpened,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaRejected,
    QuotaReparented,
    QuotaUpdated,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import PREEMPTIBLE, QUOTA_NAME, RESERVED, ROOT, DeclaredQuota, declared
from shared.kube.quantity import BadQuantity

FOLDED: tuple[type[Event], ...] = (
    ConfigApplied, QuotaDeclared, QuotaUpdated, QuotaReparented, QuotaDeleted, QuotaRejected, PodAttached, PodCharged, PodChargeReverted,
    PodResized, PodMoved, PodReleased, RuntimeRecomputed, BalancesOpened,
)  # fmt: skip
"""Event types of the `quota` context that are folded."""


NO_QUOTA = ""
"""Stands in `freed` and in the gate for the quota of pods whose own quota is rejected: none of the ledger's."""


_WITHOUT_CHARGE = ("", ROOT, *RESERVED)


class QuotaSnapshot(msgspec.Struct, frozen=True):
    """The view's part of a snapshot."""

    rules: str
    observed: dict[str, DeclaredQuota]
    quotas: dict[str, DeclaredQuota]
    runtimes: dict[str, dict[str, int]]
    pods: dict[str, Entry]
    freed: dict[str, int]


class QuotaView(QuotaHeadroom):
    """The scheduler's quotas: a fold of the events of `quota`, and of the ElasticQuotas in `cluster`.

    Attributes:
        pods: uid -> its entry in the ledger; pods_of: quota -> uids of its pods.
        freed: quota -> `quota` seq of the last event that may have released capacity in it.
        dirty: quotas and pods, by name and uid, that changed since the gate last read them.
        tightened: quotas in which less may be free since then, while no pod or quota of `dirty` says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rules_text = ""
        self.pods: dict[str, Entry] = {}
        self.pods_of: dict[str, dict[str, None]] = {}
        self.freed: dict[str, int] = {}
        self.dirty: dict[str, None] = {}
        self.tightened: dict[str, None] = {}
        self._observed: dict[str, DeclaredQuota] = {}
        # Of several objects of one name each counts: the ledger follows one, and pods of the others may have to wait.
        self._observed_names: Counter[str] = Counter()
        self._observed_namespaces: Counter[str] = Counter()

    # -- `cluster`

    def observe(self, key: str, raw: Mapping[str, Any]) -> None:
        """Folds an observed ElasticQuota; of one that cannot be read only the name is kept."""
        try:
            quota = declared(raw)
        except BadQuantity:
            quota = declared({**raw, "spec": {}})
        self.lose(key)
        self._observed[key] = quota
        self._count_observed(quota, +1)

    def lose(self, key: str) -> None:
        """Folds the deletion of an ElasticQuota."""
        if (gone := self._observed.pop(key, None)) is not None:
            self._count_observed(gone, -1)

    # -- `quota`

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of the ledger."""
        seq = record.seq
        match record.event:
            case PodCharged(pod_uid=uid):
                self._charge(uid, charged=True)
            case PodChargeReverted(pod_uid=uid):
                self._free(self._charge(uid, charged=False), seq)
            case PodAttached(pod_uid=uid, quota=quota, request=request, preemptible=preemptible) if (
                uid not in self.pods
            ):
                self._enter(uid, Entry(quota, request, seq, preemptible))
            case PodMoved(pod_uid=uid, quota=quota, request=request, preemptible=preemptible):
                before = self._leave(uid, seq)
                is_charged = before is not None and before.charged
                self._enter(uid, Entry(quota, request, seq, preemptible, charged=is_charged))
            case PodResized(pod_uid=uid, after=after):
                if (before := self._leave(uid, seq)) is not None:
                    self._enter(uid, msgspec.structs.replace(before, request=after, since=seq))
            case PodReleased(pod_uid=uid):
                self._leave(uid, seq)
            case ConfigApplied(text=text):
                self._rules_text, self.rules = text, options_of(text)
                self.dirty.update(dict.fromkeys(self.names.quotas))
                self._free_rejected(seq)  # they may count in the default group from now on
            case BalancesOpened() as opened:
                self._opened(record, opened)
            case _:
                self._apply_quota(record)

    def _apply_quota(self, record: RecordedEvent) -> None:
        seq = record.seq
        match record.event:
            case RuntimeRecomputed(runtimes=runtimes, dropped=dropped):
                self._grant(runtimes, dropped, seq)
            case QuotaDeclared(declared=quota) | QuotaUpdated(declared=quota) | QuotaReparented(declared=quota):
                self.names.put(quota)
                self._children = None
                self._free(quota.name, seq)
            case QuotaDeleted(quota=name):
                self.names.drop(name)
                self._children = None
                self.runtimes.pop(name, None)
                self.dirty[name] = None
            case QuotaRejected(reason=""):
                self._free_rejected(seq)

    # -- queries

    def needs_charge(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Returns True when a pod needs a charge: by the quotas of the ledger, or by an ElasticQuota that it has yet to
        read: also before any ledger has run, since its first charge would come too late.
        """
        label = labels.get(QUOTA_NAME, "")
        quota, _ = self.names.resolve(namespace, {QUOTA_NAME: label})
        if quota not in _WITHOUT_CHARGE:
            return True
        if label:
            return self._observed_names[label] > 0 and label not in _WITHOUT_CHARGE
        return self._observed_namespaces[namespace] > 0

    def exists(self, name: str) -> bool:
        """Returns True for a quota of the ledger, and for one with an ElasticQuota that it has yet to read, or rejects."""
        return name in self.names.quotas or self._observed_names[name] > 0

    def entry_of(self, uid: str, namespace: str, labels: Mapping[str, str], request: Mapping[str, int]) -> Entry | None:
        """Returns the pod's entry in the ledger, or the one that it will have; None for a pod without a limited quota."""
        entry = self.pods.get(uid)
        if entry is None:
            quota, _ = self.names.resolve(namespace, {QUOTA_NAME: labels.get(QUOTA_NAME, "")})
            if (found := self.names.quotas.get(quota)) is not None:
                entry = Entry(quota, mask(request, found.max), 0, labels.get(PREEMPTIBLE) != "false")
        return None if entry is None or entry.quota in RESERVED else entry

    def objects_by_name(self) -> dict[str, list[str]]:
        """Returns name -> the keys `resource/namespace/name` of the observed ElasticQuotas of that name, in order."""
        found: dict[str, list[str]] = {}
        for key, quota in sorted(self._observed.items()):
            found.setdefault(quota.name, []).append(key)
        return found

    def freed_at(self, quota: str) -> int:
        """Returns the `quota` seq of the last event that may have released capacity in a quota or in one above it."""
        if quota == NO_QUOTA:
            return self.freed.get(NO_QUOTA, 0)
        above = self.path(quota)
        return max((self.freed.get(one.name, 0) for one in above), default=0)

    # -- snapshots

    def image(self) -> QuotaSnapshot:
        """Returns the view's part of a snapshot, names sorted."""
        return QuotaSnapshot(
            self._rules_text,
            dict(sorted(self._observed.items())),
            dict(sorted(self.names.quotas.items())),
            dict(sorted(self.runtimes.items())),
            dict(sorted(self.pods.items())),
            dict(sorted(self.freed.items())),
        )

    def restore(self, image: QuotaSnapshot) -> None:
        """Restores the view from its part of a snapshot."""
        self.runtimes, self.freed = image.runtimes, image.freed
        self._rules_text, self.rules = image.rules, options_of(image.rules) if image.rules else None
        self._observed = image.observed
        for quota in image.observed.values():
            self._count_observed(quota, +1)
        for quota in image.quotas.values():
            self.names.put(quota)
        for uid, entry in image.pods.items():
            self._enter(uid, entry)

    # -- parts

    def _count_observed(self, quota: DeclaredQuota, sign: int) -> None:
        self._observed_names[quota.name] += sign
        if quota.name not in _WITHOUT_CHARGE:
            own = (quota.namespace,) if quota.name == quota.namespace else ()
            for namespace in (*own, *quota.namespaces):
                self._observed_namespaces[namespace] += sign

    def _opened(self, record: RecordedEvent, opened: BalancesOpened) -> None:
        if opened.part == 0:
            self._clear(record.seq)
        for entry in opened.entries:
            self.apply(msgspec.structs.replace(record, event=entry))

    def _clear(self, seq: int) -> None:
        for uid in list(self.pods):
            self._leave(uid, seq)
        self.names, self._children = QuotaLookup(), None
        self.runtimes.clear()
        self.freed.clear()

    def _enter(self, uid: str, entry: Entry) -> None:
        self.pods[uid] = entry
        self.pods_of.setdefault(entry.quota, {})[uid] = None
        self.dirty[uid] = None
        if entry.charged:
            self._count(entry, +1)
            self.tightened[entry.quota] = None

    def _leave(self, uid: str, seq: int) -> Entry | None:
        entry = self.pods.pop(uid, None)
        if entry is None:
            return None
        del self.pods_of[entry.quota][uid]
        if not self.pods_of[entry.quota]:
            del self.pods_of[entry.quota]
        self.dirty[uid] = None
        if entry.charged:
            self._count(entry, -1)
        self._free(entry.quota, seq)  # the gate may have kept capacity for a pod that was not charged yet
        return entry

    def _charge(self, uid: str, *, charged: bool) -> str:
        entry = self.pods.get(uid)
        if entry is None or entry.charged == charged:
            return ""
        self.pods[uid] = msgspec.structs.replace(entry, charged=charged)
        self._count(entry, +1 if charged else -1)
        if charged:
            self.tightened[entry.quota] = None
        return entry.quota

    def _grant(self, runtimes: dict[str, dict[str, int]], dropped: dict[str, list[str]], seq: int) -> None:
        more: dict[str, None] = {}
        for resource, sizes in runtimes.items():
            for quota, size in sizes.items():
                of_quota = self.runtimes.setdefault(quota, {})
                if size > of_quota.get(resource, -1):
                    more[quota] = None
                else:
                    self.tightened[quota] = None
                of_quota[resource] = size
        for resource, quotas in dropped.items():
            for quota in quotas:
                if left := self.runtimes.get(quota):
                    left.pop(resource, None)
                    if not left:
                        del self.runtimes[quota]
                more[quota] = None
        for quota in more:
            if quota in self.names.quotas:
                self.freed[quota] = seq
                self.dirty[quota] = None

    def _free_rejected(self, seq: int) -> None:
        self.freed[NO_QUOTA] = seq
        self.dirty[NO_QUOTA] = None

    def _free(self, quota: str, seq: int) -> None:
        if quota:
            for one in self.path(quota):
                self.freed[one.name] = seq
                self.dirty[one.name] = None
