"""What the own log has told the world of each quota's object, and which quotas may have something new to tell.

Source: spec/quota.md 6.6, 7.6.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from services.quota_ledger.accounting.projection import LedgerProjection
from shared.events import Event, RecordedEvent
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.quota import (
    CapacitySet,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaReparented,
    QuotaUpdated,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import PREFIX, ROOT, BadResourceList, resource_list
from shared.kube.quantity import BadQuantity, amounts

STATUS = "quota-status"
"""The field group of a quota's object that the ledger writes."""

NUMBERS = (
    "runtime", "request", "child-request", "guaranteed", "allocated", "non-preemptible-request", "non-preemptible-used",
)  # fmt: skip
"""Suffixes of the annotations in it."""

USED = "used"
"""And of its status."""


class PublishedPatch(msgspec.Struct, frozen=True):
    """The newest level of one object.

    Attributes:
        uid: of the object that it was written to.
        at_ns: when.
    """

    uid: str
    patch: dict[str, Any]
    at_ns: int


class PublishedStatus:
    """A fold over the own log.

    Attributes:
        told: `resource/namespace/name` of an object -> what it was told last; with a `#` behind it, what it was made as.
        due: names of quotas whose numbers may differ from that; `unshown` of those that metrics may show otherwise. Only notes of
            where to look: the numbers themselves decide.
    """

    def __init__(self) -> None:
        self.told: dict[str, PublishedPatch] = {}
        self.due: dict[str, None] = {}
        self.unshown: dict[str, None] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event of the `quota` context."""
        match record.event:
            case FieldsDesired(resource=resource, name=key, uid=uid, patch=patch):
                self.told[f"{resource}/{key}"] = PublishedPatch(uid, patch, record.at_ns)
            case ObjectDesired(resource=resource, name=key, body=body):
                self.told[f"{resource}/{key}#"] = PublishedPatch("", body or {}, record.at_ns)

    def restore(self, told: Mapping[str, PublishedPatch], projection: LedgerProjection) -> None:
        """Take over what was told; every quota is looked at once."""
        self.told.update(told)
        self._note((ROOT, *projection.names.quotas))

    def touch(self, event: Event, projection: LedgerProjection) -> None:
        """Note whose numbers an event is about; asked before and after it is booked, for a quota that moves or goes."""
        match event:
            case RuntimeRecomputed(runtimes=runtimes, dropped=dropped):
                for names in (*runtimes.values(), *dropped.values()):
                    self._note(names)
            case CapacitySet():
                self._note((ROOT,))
            case PodMoved(before=before, quota=quota):
                self._path(before, projection)
                self._path(quota, projection)
            case (
                PodAttached(quota=quota)
                | PodCharged(quota=quota)
                | PodChargeReverted(quota=quota)
                | PodReleased(quota=quota)
                | PodResized(quota=quota)
                | QuotaDeclared(quota=quota)
                | QuotaUpdated(quota=quota)
                | QuotaReparented(quota=quota)
                | QuotaDeleted(quota=quota)
            ):
                self._path(quota, projection)

    def said(self, place: str, name: str, says: Iterable[str]) -> None:
        """Note that a quota's object has numbers that it was not told: somebody else wrote them."""
        told = self.told.get(place)
        patch = told.patch if told else {}
        known = patch.get("metadata", {}).get("annotations", {})
        if not all(PREFIX + number in known if number in NUMBERS else "status" in patch for number in says):
            self.due[name] = None

    def _path(self, quota: str, projection: LedgerProjection) -> None:
        if (tree := projection.tree_of.get(quota)) is not None:
            self._note(info.name for info in projection.trees[tree].path(quota))

    def _note(self, names: Iterable[str]) -> None:
        for name in names:
            self.due[name] = None
            self.unshown[name] = None


def numbers_on(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Numbers that an object's quota no longer has, whoever wrote it: those of `NUMBERS` and `USED` that are not zero, or cannot be read."""
    metadata = raw.get("metadata") or {}
    used = (raw.get("status") or {}).get("used") or {}
    found = [number for number in NUMBERS if _says_something(partial(resource_list, metadata, number))]
    return (*found, USED) if _says_something(partial(amounts, used)) else tuple(found)


def _says_something(read: Callable[[], Mapping[str, int] | None]) -> bool:
    try:
        return any((read() or {}).values())
    except (BadResourceList, BadQuantity):
        return True
