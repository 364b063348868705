"""Sightings of NodeMetrics that tell what the log says already: the echoes of our own writes of their status.

A level (`FieldsDesired`) has the whole status in it, and so has the report in `metrics-*` from which it was made; with 10,000 nodes
their echoes would be most of the log. A sighting is passed over if both hold:

- it says what the newest levels of the object's status say, letter by letter (what is kept of an object lacks what is empty);
- apart from that it says what it said when it was recorded last.

Whatever another hand changes is recorded with all of the object. Kept in memory only: after a restart each is recorded once more.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from services.gateway.effects.drift import body_of, through
from services.gateway.effects.intents import Place
from services.gateway.kube_api.resources import NODE_METRICS
from services.gateway.state import GatewayState
from services.gateway.watch.field_filter import Seen
from shared.events.intents import FieldsDesired

_SORTED = msgspec.json.Encoder(order="sorted")


class _Rest(NamedTuple):
    """What was recorded of an object last, apart from what levels say: its uid, and a digest."""

    uid: str
    digest: bytes


class Retold:
    """What was recorded of each NodeMetric last."""

    def __init__(self) -> None:
        self._recorded: dict[Place, _Rest] = {}

    def news(self, state: GatewayState, seen: dict[Place, Seen | None]) -> dict[Place, Seen | None]:
        """The sightings that the log must be compared with, noted as recorded; in the same order."""
        return {place: each for place, each in seen.items() if not self._is_retold(state, place, each)}

    def _is_retold(self, state: GatewayState, place: Place, seen: Seen | None) -> bool:
        if place.resource != NODE_METRICS.name:
            return False
        if seen is None:
            self._recorded.pop(place, None)
            return False
        body = body_of(seen)
        patches = [level.patch for level in _status_levels(state, place)]
        rest = body
        for patch in patches:
            rest = _without(patch, rest)
        now, before = _Rest(seen.uid, _digest(_filled(rest))), self._recorded.get(place)
        self._recorded[place] = now
        known = state.known.get(place.resource, {}).get(place.key)
        return (
            bool(patches)
            and now == before
            and known is not None
            and known.uid == seen.uid
            and all(_filled(through(patch, body)) == _filled(patch) for patch in patches)
        )


def _status_levels(state: GatewayState, place: Place) -> list[FieldsDesired]:
    """The newest levels of an object's status that are written or about to be."""
    causes = (state.newest[slot] for slot in state.slots.get(place, ()))
    levels = (state.held.get(cause) or state.levels.get(cause) for cause in causes)
    return [level for level in levels if isinstance(level, FieldsDesired) and level.subresource == "status"]


def _without(patch: Any, body: Any) -> Any:
    """What a merge patch does not name."""
    if not isinstance(patch, dict) or not isinstance(body, dict):
        return None
    return {name: _without(patch[name], part) if name in patch else part for name, part in body.items()}


def _filled(body: Any) -> Any:
    """Without parts that are absent or empty: which of these they are is not kept of an object."""
    if not isinstance(body, dict):
        return body
    parts = {name: _filled(part) for name, part in body.items()}
    return {name: part for name, part in parts.items() if part not in (None, {}, [])}


def _digest(body: Any) -> bytes:
    return blake2b(_SORTED.encode(body), digest_size=16).digest()
