"""All pods by uid: what `cluster` shows of each, and its entry in the accounting.

Memory decides here: 200,000 pods are ordinary. A pod has one entry and one place in one dictionary; all that pods of a
workload have in common is stored once, and indexes by quota, label and namespace exist only while they are used.
"""

from collections.abc import Iterator, Mapping
from weakref import WeakValueDictionary

import msgspec

from services.quota_ledger.pods.lazy_pod_index import LazyPodIndex
from services.quota_ledger.pods.observed_pod import ObservedPod
from services.quota_ledger.pods.pod_quota_entry import AttachedPod

MAX_CHARGED = 4_096
"""Combinations of one cycle that are remembered."""


class PodEntry(msgspec.Struct, gc=False):
    """One pod.

    Attributes:
        name: namespace/name.
        started_s: seconds since the epoch, 0 before its start. Kubernetes has whole seconds; a float is smaller
            than an integer of nanoseconds.
        since: `cluster` seq of the first observation since it was last deleted.
        observed: None for a pod that `cluster` does not show (any more).
        attached: None for a pod that counts in no quota.
    """

    name: str
    started_s: float = 0.0
    since: int = 0
    observed: ObservedPod | None = None
    attached: AttachedPod | None = None


class PodTable:
    """Entries by uid.

    Attributes:
        entries: a pod that is neither observed nor attached is absent.
        attached: the attached ones, as a mapping.
        by_quota, by_label, by_namespace: uids of the attached pods of a quota; of the observed pods with a label, or
            in a namespace.
    """

    def __init__(self) -> None:
        self.entries: dict[str, PodEntry] = {}
        self.attached = AttachedPods(self.entries)
        self.by_quota = LazyPodIndex(lambda: ((pod.quota, uid) for uid, pod in self.attached.items()))
        self.by_label = LazyPodIndex(lambda: ((pod.label, uid) for uid, pod in self.observed() if pod.label))
        self.by_namespace = LazyPodIndex(lambda: ((pod.namespace, uid) for uid, pod in self.observed()))
        self._observed: WeakValueDictionary[tuple[object, ...], ObservedPod] = WeakValueDictionary()
        self._attached: WeakValueDictionary[tuple[object, ...], AttachedPod] = WeakValueDictionary()
        self._charged: dict[AttachedPod, AttachedPod] = {}
        self._charged_in = (0, 0)
        self._last_start_s = 0.0

    def observed(self) -> Iterator[tuple[str, ObservedPod]]:
        """Yields the pods that `cluster` shows."""
        for uid, entry in self.entries.items():
            if entry.observed is not None:
                yield uid, entry.observed

    def observe(self, uid: str, name: str, pod: ObservedPod, started_s: float, since: int) -> None:
        """Stores a pod's object, observed at a `cluster` seq, which counts if the pod was not observed before."""
        entry = self.entries.get(uid)
        if entry is None:
            entry = self.entries[uid] = PodEntry(name)
        before, after = entry.observed, self._shared(pod)
        if before is None:
            entry.since = since
        if before is not after:
            self._unindex(uid, before)
            self.by_namespace.add(after.namespace, uid)
            if after.label:
                self.by_label.add(after.label, uid)
        if started_s != self._last_start_s:  # pods of one workload start in the same second: one float for all
            self._last_start_s = started_s
        entry.observed, entry.started_s = after, self._last_start_s

    def forget(self, uid: str) -> None:
        """Drops a pod's object; its entry in the accounting stays until it is released."""
        entry = self.entries.get(uid)
        if entry is not None:
            self._unindex(uid, entry.observed)
            entry.observed, entry.started_s, entry.since = None, 0.0, 0  # a pod of that uid may come back
            self._drop_empty(uid, entry)

    def attach(self, uid: str, name: str, pod: AttachedPod) -> None:
        """Stores a pod's entry in the accounting, in place of the one before."""
        entry = self.entries.get(uid)
        if entry is None:
            entry = self.entries[uid] = PodEntry(name)
        if entry.attached is None:
            self.attached.count += 1
        elif entry.attached.quota != pod.quota:
            self.by_quota.discard(entry.attached.quota, uid)
        entry.attached = self._shared_entry(pod)
        self.by_quota.add(pod.quota, uid)

    def charged(self, pod: AttachedPod, epoch: int, cycle: int) -> AttachedPod:
        """Returns the stored entry of a pod after a charge for this cycle."""
        # Charges come cycle by cycle, many of them for pods alike: one look-up each instead of a new object and its key.
        if cycle != self._charged_in[1] or epoch != self._charged_in[0]:
            self._charged_in = (epoch, cycle)
            self._charged.clear()
        after = self._charged.get(pod)
        if after is None:
            if len(self._charged) >= MAX_CHARGED:
                self._charged.clear()
            after = pod.charged_by(epoch, cycle)
            if not cycle:  # a pod that another scheduler placed: pods alike come at any time, not in one cycle
                after = self._shared_entry(after)
            self._charged[pod] = after
        return after

    def detach(self, uid: str) -> None:
        """Drops a pod's entry in the accounting."""
        entry = self.entries.get(uid)
        if entry is not None and entry.attached is not None:
            self.by_quota.discard(entry.attached.quota, uid)
            entry.attached = None
            self.attached.count -= 1
            self._drop_empty(uid, entry)

    def _drop_empty(self, uid: str, entry: PodEntry) -> None:
        if entry.observed is None and entry.attached is None:
            del self.entries[uid]

    def _unindex(self, uid: str, pod: ObservedPod | None) -> None:
        if pod is not None:
            self.by_namespace.discard(pod.namespace, uid)
            if pod.label:
                self.by_label.discard(pod.label, uid)

    def _shared(self, pod: ObservedPod) -> ObservedPod:
        fields = (pod.bound, pod.preemptible, pod.priority, pod.ended, pod.terminating, pod.gang, pod.gang_settings)
        key = (pod.namespace, pod.label, tuple(pod.request.items()), fields)
        return self._observed.setdefault(key, pod)

    def _shared_entry(self, pod: AttachedPod) -> AttachedPod:
        fields = (pod.preemptible, pod.charged, pod.matched_by, pod.epoch, pod.cycle)
        key = (pod.tree, pod.quota, tuple(pod.request.items()), fields)
        return self._attached.setdefault(key, pod)


class AttachedPods(Mapping[str, AttachedPod]):
    """The attached pods of a table by uid.

    Attributes:
        count: how many there are.
    """

    def __init__(self, entries: dict[str, PodEntry]) -> None:
        self._entries = entries
        self.count = 0

    def __getitem__(self, uid: str) -> AttachedPod:
        pod = self._entries[uid].attached
        if pod is None:
            raise KeyError(uid)
        return pod

    def get(self, uid: str, default: None = None) -> AttachedPod | None:  # type: ignore[override]  # without a raise
        """Returns a pod's entry in the accounting."""
        entry = self._entries.get(uid)
        return default if entry is None else entry.attached

    def name(self, uid: str) -> str:
        """Returns namespace/name of a pod."""
        return self._entries[uid].name

    def __iter__(self) -> Iterator[str]:
        return (uid for uid, entry in self._entries.items() if entry.attached is not None)

    def __len__(self) -> int:
        return self.count
