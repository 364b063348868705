"""The numbers that the ledger last wrote to each quota's object, and the quotas whose numbers may have changed since.

Source: spec/quota.md 6.6, 7.6.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
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

CREATED = "#"
"""Suffix of the key of the body that a quota's object was created with."""

RELEASED = ""
"""Field group of the object itself: an empty patch of it ends the desired state of the body."""

NUMBERS = (
    "runtime", "request", "child-request", "guaranteed", "allocated", "non-preemptible-request", "non-preemptible-used",
)  # fmt: skip
"""Suffixes of the annotations in it."""

USED = "used"
"""The number in its status."""


class PublishedPatch(msgspec.Struct, frozen=True):
    """The newest patch of one object.

    Attributes:
        uid: of the object that it was written to.
        at_ns: time of the record.
    """

    uid: str
    patch: dict[str, Any]
    at_ns: int


class PublishedStatus:
    """A fold over the ledger's own log.

    Attributes:
        patches: `resource/namespace/name` of an object -> its newest patch; with `CREATED` appended, the body that it
            was created with.
        changed: names of quotas whose numbers may differ from their patch; `metrics_changed`: from their metrics. They
            only limit the search: the numbers themselves are compared.
    """

    def __init__(self) -> None:
        self.patches: dict[str, PublishedPatch] = {}
        self.changed: dict[str, None] = {}
        self.metrics_changed: dict[str, None] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of the `quota` context."""
        match record.event:
            case FieldsDesired(resource=resource, name=key, fields=fields) if fields == RELEASED:
                self.patches.pop(f"{resource}/{key}{CREATED}", None)
            case FieldsDesired(resource=resource, name=key, uid=uid, patch=patch):
                self.patches[f"{resource}/{key}"] = PublishedPatch(uid, patch, record.at_ns)
            case ObjectDesired(resource=resource, name=key, body=None):
                self.patches.pop(f"{resource}/{key}{CREATED}", None)
            case ObjectDesired(resource=resource, name=key, body=body):
                self.patches[f"{resource}/{key}{CREATED}"] = PublishedPatch("", body or {}, record.at_ns)

    def note_all(self, projection: LedgerProjection) -> None:
        """Notes every quota: after a snapshot or opening balances each is compared once."""
        self._note((ROOT, *projection.lookup.quotas))

    def note_affected(self, event: Event, projection: LedgerProjection) -> None:
        """Notes the quotas whose numbers an event changes; called before and after the event is folded."""
        match event:
            case RuntimeRecomputed(runtimes=runtimes, dropped=dropped):
                for names in (*runtimes.values(), *dropped.values()):
                    self._note(names)
            case CapacitySet():
                self._note((ROOT,))
            case PodMoved(before=before, quota=quota):
                self._note_path(before, projection)
                self._note_path(quota, projection)
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
                self._note_path(quota, projection)

    def note_present(self, key: str, name: str, present: Iterable[str]) -> None:
        """Notes a quota whose object has numbers that are not in its patch: somebody else wrote them."""
        published = self.patches.get(key)
        patch = published.patch if published else {}
        known = patch.get("metadata", {}).get("annotations", {})
        if not all(PREFIX + number in known if number in NUMBERS else "status" in patch for number in present):
            self.changed[name] = None

    def _note_path(self, quota: str, projection: LedgerProjection) -> None:
        if (tree := projection.tree_of.get(quota)) is not None:
            self._note(info.name for info in projection.trees[tree].path(quota))

    def _note(self, names: Iterable[str]) -> None:
        noted = dict.fromkeys(names)
        self.changed.update(noted)
        self.metrics_changed.update(noted)


def numbers_on(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns which of `NUMBERS` and `USED` an object has that are not zero or unreadable, from any writer."""
    metadata = raw.get("metadata") or {}
    used = (raw.get("status") or {}).get("used") or {}
    found = [number for number in NUMBERS if _is_present(partial(resource_list, metadata, number))]
    return (*found, USED) if _is_present(partial(amounts, used)) else tuple(found)


def _is_present(read: Callable[[], Mapping[str, int] | None]) -> bool:
    try:
        return any((read() or {}).values())
    except (BadResourceList, BadQuantity):
        return True
