"""Pods in books without upstream's delays: after each event every pod is counted where the current objects lead it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from cli.parity.upstream.quota.pod_events import Booked
from cli.parity.upstream.quota.quota_books import PodVersion, QuotaBooks, Raw
from services.quota_ledger.pods.pod_request import is_preemptible
from shared.domain.amounts import Amounts, negated
from shared.kube.pod import ENDED_PHASES, Pod


class Place(NamedTuple):
    """The place of one pod in the books."""

    quota: str
    tree: str
    vector: Amounts
    preemptible: bool
    assigned: bool


class ImmediatePods:
    """The books as a function of the pods that exist, the quotas, and the placements that were not rejected."""

    def __init__(self, books: QuotaBooks) -> None:
        self._quotas = books
        self._pods: dict[str, PodVersion] = {}
        self._placed: set[str] = set()
        self._places: dict[str, Place] = {}

    def of(self, tree: str, quota: str) -> Mapping[str, Booked]:
        """Returns the pods of a quota by namespace/name."""
        return {
            key: Booked(self._pods[key], place.vector, assigned=place.assigned)
            for key, place in self._places.items()
            if (place.tree, place.quota) == (tree, quota)
        }

    def forget(self, tree: str, quota: str) -> None:
        """Drops the places in a quota that is gone; `settle` finds others."""
        self._places = {key: at for key, at in self._places.items() if (at.tree, at.quota) != (tree, quota)}

    def add(self, raw: Raw) -> None:
        """Takes a pod's object."""
        version = self._quotas.read(raw)
        if version.ignored:
            self.delete(raw)
        else:
            self._pods[version.pod.metadata.key] = version

    def update(self, old_raw: Raw, raw: Raw) -> None:
        """Takes a pod's newer object."""
        if old_raw["metadata"].get("resourceVersion") != raw["metadata"].get("resourceVersion"):
            self.add(raw)

    def delete(self, raw: Raw) -> None:
        """Takes away a pod."""
        key = msgspec.convert(raw, Pod).metadata.key
        self._pods.pop(key, None)
        self._placed.discard(key)

    def reserve(self, raw: Raw) -> None:
        """Places a pod."""
        key = msgspec.convert(raw, Pod).metadata.key
        if key in self._pods:
            self._placed.add(key)

    def unreserve(self, raw: Raw) -> None:
        """Takes back a placement."""
        self._placed.discard(msgspec.convert(raw, Pod).metadata.key)

    def migrate(self) -> None:
        """Does nothing: each pod is where it belongs."""

    def settle(self) -> None:
        """Moves every pod that is not counted where it belongs."""
        for key in sorted(self._pods.keys() | self._places.keys()):
            before, after = self._places.get(key), self._place(key)
            if before == after:
                continue
            if before is not None:
                self._book(before, -1)
                del self._places[key]
            if after is not None:
                self._book(after, +1)
                self._places[key] = after

    def _place(self, key: str) -> Place | None:
        if key not in self._pods or (pod := self._pods[key].pod).status.phase in ENDED_PHASES:
            return None
        quota, tree = self._quotas.resolve(pod)
        if tree not in self._quotas.trees or quota not in self._quotas.trees[tree].quotas:
            return None
        vector = self._quotas.counted(quota, tree, pod)
        return Place(quota, tree, vector, is_preemptible(pod), bool(pod.spec.node_name) or key in self._placed)

    def _book(self, place: Place, sign: int) -> None:
        vector = place.vector if sign > 0 else negated(place.vector)
        np_vector = {} if place.preemptible else vector
        tree = self._quotas.trees[place.tree]
        if sign > 0:
            tree.add_request(place.quota, vector, np_vector)
        if place.assigned:
            tree.add_used(place.quota, vector, np_vector)
        if sign < 0:
            tree.add_request(place.quota, vector, np_vector)
