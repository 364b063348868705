"""Decodes events of the declared types, one by one or a page at a time; old versions through their upcasters.

An event that retention has carried forward (`CarriedForward`) passes: only a fold that begins behind the event itself
reads it (`original`).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.errors import KoordError
from shared.events import UPCASTERS, Cause, Event, RecordedEvent
from shared.events.log import CarriedForward


class Unreadable(KoordError):
    """An event of a declared type that this code cannot decode or fold."""

    def __init__(self, context: str, seq: int, error: Exception) -> None:
        super().__init__(f"{context}/{seq}: {error!r}")
        self.context, self.seq, self.error = context, seq, error


class _Tagged(msgspec.Struct):
    """The type of an event."""

    type: str


class Codec:
    """Decodes the declared types of one context, one by one or a page at a time; old versions through their upcasters."""

    def __init__(self, kinds: Sequence[type[Event]]) -> None:
        declared = {kind.type_name(): kind for kind in kinds}
        old = {name: upcaster.read for name, upcaster in UPCASTERS.items() if upcaster.to in kinds}
        self.declared = frozenset({*declared, *old})
        self.names = sorted(self.declared)
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in declared.items()}
        self._upcasters = old
        union: Any = Event
        if kinds:
            union = kinds[0]
            for kind in kinds[1:]:
                union = union | kind
        self._page = msgspec.json.Decoder(list[union])

    def one(self, name: str, data: bytes) -> Event | None:
        """Decodes an event; None when its type is not declared."""
        decoder = self._decoders.get(name)
        if decoder is not None:
            return decoder.decode(data)
        upcaster = self._upcasters.get(name)
        return upcaster(msgspec.json.decode(data)) if upcaster else None

    def original(self, copy: CarriedForward) -> RecordedEvent | None:
        """Returns the event that was carried forward, as it was recorded; None when its type is not declared."""
        data = bytes(copy.event)
        event = self.one(msgspec.json.decode(data, type=_Tagged).type, data)
        if event is None:
            return None
        place = Cause.parse(copy.original)
        cause = Cause.parse(copy.cause) if copy.cause else None
        return RecordedEvent(place.context, place.seq, event, copy.at_us * 1000, cause)

    def page(self, data: bytes | memoryview) -> Sequence[Event | None]:
        """Decodes a page of events from their JSON texts joined by commas.

        One call decodes a page of current versions; old versions are decoded one by one.
        """
        try:
            decoded: list[Event] = self._page.decode(b"[" + data + b"]")
        except msgspec.ValidationError:
            return [self._known(bytes(raw)) for raw in msgspec.json.decode(b"[" + data + b"]", type=list[msgspec.Raw])]
        return decoded

    def _known(self, data: bytes) -> Event | None:
        name = msgspec.json.decode(data, type=_Tagged).type
        if name not in self.declared:  # the row's type is declared, the type in its data is not
            raise msgspec.ValidationError(f"{name} in a row of another type")
        return self.one(name, data)
