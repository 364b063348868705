"""Pods in upstream's books: each is counted by the object of its last event. Source: spec/quota.md 2.4."""

from collections.abc import Mapping

import msgspec

from cli.parity.upstream.quota.quirks import Quirk
from cli.parity.upstream.quota.quota_books import PodVersion, QuotaBooks, Raw
from services.quota_ledger.pods.pod_request import is_preemptible
from shared.domain.amounts import Amounts, negated, sub
from shared.kube.elastic_quota import DEFAULT
from shared.kube.pod import ENDED_PHASES, Pod


class Booked:
    """A pod in the books.

    Attributes:
        first, latest: the object that was seen first, and last.
        vector: the counted request.
        assigned: whether the vector is counted as used.
    """

    def __init__(self, version: PodVersion, vector: Amounts, *, assigned: bool = False) -> None:
        self.first, self.latest, self.vector, self.assigned = version, version, vector, assigned


class EventPods:
    """The books by tree and quota: a pod stays where its last event has put it."""

    def __init__(self, books: QuotaBooks) -> None:
        self._quotas, self._quirks = books, books.quirks
        self._books: dict[tuple[str, str], dict[str, Booked]] = {}

    def of(self, tree: str, quota: str) -> Mapping[str, Booked]:
        """Returns the pods of a quota by namespace/name."""
        return self._books.get((tree, quota), {})

    def forget(self, tree: str, quota: str) -> None:
        """Drops the pods of a quota that is gone; their requests leave with it."""
        self._books.pop((tree, quota), None)

    def settle(self) -> None:
        """Does nothing: between events upstream's books do not change."""

    def add(self, raw: Raw) -> None:
        """Counts a new pod; a known one is left as it is."""
        version = self._quotas.read(raw)
        quota, tree = self._quotas.resolve(version.pod)
        if quota:
            self._enter(quota, tree, version)

    def update(self, old_raw: Raw, raw: Raw) -> None:
        """Moves a pod, or counts the difference between its two objects."""
        if old_raw["metadata"].get("resourceVersion") == raw["metadata"].get("resourceVersion"):
            return
        old, version = self._quotas.read(old_raw).pod, self._quotas.read(raw)
        (was, was_tree), (quota, tree) = self._quotas.resolve(old), self._quotas.resolve(version.pod)
        booked = self.of(tree, quota).get(old.metadata.key)
        if (was, was_tree) != (quota, tree):
            if was:
                self._leave(was, was_tree, old)
            if quota:
                self._enter(quota, tree, version)
        elif not quota:
            return
        elif booked is None:
            self._enter(quota, tree, version)
        elif self._is_left_out(version):
            self._leave(quota, tree, old)
        else:
            self._resize(quota, tree, booked, old, version)

    def delete(self, raw: Raw) -> None:
        """Releases a pod."""
        pod = msgspec.convert(raw, Pod)
        quota, tree = self._quotas.resolve(pod)
        if quota:
            self._leave(quota, tree, pod)

    def reserve(self, raw: Raw) -> None:
        """Counts a pod as used."""
        self._assign(msgspec.convert(raw, Pod), to=True)

    def unreserve(self, raw: Raw) -> None:
        """Counts a pod as used no more."""
        self._assign(msgspec.convert(raw, Pod), to=False)

    def migrate(self) -> None:
        """Moves the pods of the default group whose quota is there by now."""
        for booked in list(self.of("", DEFAULT).values()):
            version = booked.first if Quirk.FIRST_SEEN in self._quirks else booked.latest
            quota, tree = self._quotas.resolve(version.pod)
            if quota != DEFAULT:
                self._leave(DEFAULT, "", version.pod)
                self._enter(quota, tree, version, assigned=booked.assigned if tree == "" else None)

    def _enter(self, quota: str, tree: str, version: PodVersion, *, assigned: bool | None = None) -> None:
        pod = version.pod
        key = pod.metadata.key
        if self._is_left_out(version) or key in self.of(tree, quota):
            return
        if quota not in self._quotas.tree(tree).quotas:
            return
        booked = Booked(version, self._quotas.counted(quota, tree, pod))
        self._books.setdefault((tree, quota), {})[key] = booked
        self._request(quota, tree, pod, booked.vector)
        if runs(pod) if assigned is None else assigned:
            booked.assigned = True
            self._use(quota, tree, pod, booked.vector)

    def _leave(self, quota: str, tree: str, pod: Pod) -> None:
        booked = self.of(tree, quota).get(pod.metadata.key)
        if booked is None:
            return
        vector = negated(self._vector(booked, quota, tree, pod))
        if booked.assigned:
            self._use(quota, tree, pod, vector)
        self._request(quota, tree, pod, vector)
        del self._books[tree, quota][pod.metadata.key]

    def _resize(self, quota: str, tree: str, booked: Booked, old: Pod, version: PodVersion) -> None:
        pod = version.pod
        after = self._quotas.counted(quota, tree, pod)
        change = sub(after, self._vector(booked, quota, tree, old))
        booked.latest, booked.vector = version, after
        self._request(quota, tree, pod, change)
        if booked.assigned:
            self._use(quota, tree, pod, change)
        elif runs(pod):
            booked.assigned = True
            self._use(quota, tree, pod, after)

    def _assign(self, pod: Pod, *, to: bool) -> None:
        quota, tree = self._quotas.resolve(pod)
        booked = self.of(tree, quota).get(pod.metadata.key) if quota else None
        if booked is None or booked.assigned == to:
            return
        if not to and booked.latest.pod.spec.node_name and Quirk.FREES_BOUND not in self._quirks:
            return
        booked.assigned = to
        vector = self._vector(booked, quota, tree, pod)
        self._use(quota, tree, pod, vector if to else negated(vector))

    def _vector(self, booked: Booked, quota: str, tree: str, pod: Pod) -> Amounts:
        return self._quotas.counted(quota, tree, pod) if Quirk.CURRENT_MASK in self._quirks else booked.vector

    def _is_left_out(self, version: PodVersion) -> bool:
        has_ended = version.pod.status.phase in ENDED_PHASES and Quirk.COUNTS_ENDED not in self._quirks
        return has_ended or version.ignored

    def _request(self, quota: str, tree: str, pod: Pod, vector: Amounts) -> None:
        self._quotas.trees[tree].add_request(quota, vector, {} if is_preemptible(pod) else vector)

    def _use(self, quota: str, tree: str, pod: Pod, vector: Amounts) -> None:
        self._quotas.trees[tree].add_used(quota, vector, {} if is_preemptible(pod) else vector)


def runs(pod: Pod) -> bool:
    """Returns whether a pod is on a node and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES
