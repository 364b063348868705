"""Observations that wait for their append: the newest of each object, in the order of observation, large objects apart.

An append of many objects of a mebibyte takes seconds. Large objects therefore pass a few at a time, and those of other
tenants pass them, as do outcomes.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.unused_field_removal import ObservedObject

MAX_BATCH = 2_000
"""Objects taken at a time: the first list of a large cluster must not block the event loop for long."""

LARGE = 16 * 1024
"""Bytes of an object's event from which it is large; a pod has one to three thousand."""

LARGE_BYTES = 4 * 2**20
"""Bytes after which no further large object is taken."""

_ENCODE = msgspec.json.Encoder().encode


class PendingObservations:
    """The newest observation of each object; None where it does not exist."""

    def __init__(self) -> None:
        self._pending: dict[ObjectRef, ObservedObject | None] = {}
        self._large: dict[ObjectRef, tuple[int, ObservedObject]] = {}

    def __bool__(self) -> bool:
        return bool(self._pending or self._large)

    def __iter__(self) -> Iterator[ObjectRef]:
        yield from self._large
        yield from self._pending

    def put(self, ref: ObjectRef, seen: ObservedObject | None) -> None:
        """Replaces the observation of an object, which becomes the last in the order."""
        self._large.pop(ref, None)
        self._pending.pop(ref, None)
        self._pending[ref] = seen

    def take(self) -> dict[ObjectRef, ObservedObject | None]:
        """Removes and returns the next batch."""
        batch: dict[ObjectRef, ObservedObject | None] = {}
        for ref in list(islice(self._pending, MAX_BATCH)):
            seen = self._pending.pop(ref)
            if seen is not None and (size := len(_ENCODE(seen.object))) >= LARGE:
                self._large[ref] = (size, seen)
            else:
                batch[ref] = seen
        taken = 0
        while self._large and taken < LARGE_BYTES:
            ref = next(iter(self._large))
            size, batch[ref] = self._large.pop(ref)
            taken += size
        return batch
