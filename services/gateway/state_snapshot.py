"""Stored form of the gateway's State. Intents and outcomes are grouped by context, in order of seq."""

from collections.abc import Mapping
from operator import itemgetter
from typing import TypeVar

import msgspec

from services.gateway.effects.intents import DesiredState, OneShot
from services.gateway.state_fields import EarlyOutcome, KnownObject, ObservedPod, Suppressed
from services.gateway.webhooks.admission_state import StoredAdmission
from shared.events import Cause
from shared.events.intents import FieldsDesired, ObjectDesired

T = TypeVar("T")

ByContext = dict[str, list[tuple[int, T]]]


class StoredIntents(msgspec.Struct):
    """Stored form of the IntentIndex."""

    one_shots: ByContext[OneShot]
    desired: ByContext[DesiredState]
    superseded: ByContext[DesiredState]
    applied: ByContext[FieldsDesired | ObjectDesired]
    suppressed: ByContext[Suppressed]
    early_outcomes: ByContext[EarlyOutcome]


class StoredState(msgspec.Struct):
    """Stored form of the whole State."""

    positions: dict[str, int]
    known: dict[str, dict[str, KnownObject]]
    pods: dict[str, ObservedPod]
    intents: StoredIntents
    started_seq: int
    admission: StoredAdmission
    late_admitted: list[str]


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(StoredState)


def encode(stored: StoredState) -> bytes:
    """Encodes a snapshot with sorted names, so that equal States give equal bytes."""
    return _ENCODER.encode(stored)


def decode(data: bytes) -> StoredState:
    """Decodes what `encode` wrote."""
    return _DECODER.decode(data)


def by_context(items: Mapping[Cause, T]) -> ByContext[T]:
    """Groups values by the context of their intent, in order of seq."""
    grouped: ByContext[T] = {}
    for cause, item in sorted(items.items(), key=itemgetter(0)):
        grouped.setdefault(cause.context, []).append((cause.seq, item))
    return grouped


def by_cause(stored: ByContext[T]) -> dict[Cause, T]:
    """Reverses `by_context`."""
    return {Cause(context, seq): item for context, items in stored.items() for seq, item in items}
