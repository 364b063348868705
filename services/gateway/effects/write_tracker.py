"""Which levels another hand has overwritten, and which versions objects have: what the watches bring, against what we wrote.

A watch tells of our own writes too, and may tell late of an older state. What is not newer than our write is an echo; what is
newer and says something else than the server answered to our write is drift. The server's answer counts, not the level's own
text, for a server may write a value in another way (`1000m` as `1`).

Kept in memory only: after a restart every object is listed, so drift is found again, at the price of one write that changes
nothing for each level that the server writes in another way.
"""

from typing import Any, NamedTuple

from services.gateway.effects import drift
from services.gateway.effects.intents import Place, place_of
from services.gateway.state import GatewayState
from services.gateway.watch.field_filter import Seen
from shared.events import Cause
from shared.events.intents import FieldsDesired, ObjectDesired

PATIENCE_S = 64.0
"""A level that others keep overwriting is written again at once, then after 1, 2, 4, ... up to this many seconds."""

PEACE_S = 600.0
"""After this long without another's write the next one is answered at once again."""


class Wrote(NamedTuple):
    """Our newest write of a level: the object's version after it, what it said then, and how often it was needed."""

    version: str
    said: Any
    at_s: float
    pause_s: float


class Echoes:
    """What is known of objects beyond the State. Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._versions: dict[Place, str] = {}
        self._wrote: dict[Cause, Wrote] = {}
        self._drifted: dict[Cause, float] = {}  # level -> when it may be written again
        self._latest: dict[Place, Seen] = {}  # of objects with a level under way

    def version(self, place: Place) -> str:
        """The newest resourceVersion known; empty when none is."""
        return self._versions.get(place, "")

    def drifted(self, now_s: float) -> list[Cause]:
        """Levels to write again now."""
        return [cause for cause, at_s in self._drifted.items() if at_s <= now_s]

    def saw(self, state: GatewayState, place: Place, seen: Seen, now_s: float) -> bool:
        """Note what a list or a watch brought; say whether a level must be written again because of it."""
        known = self._versions.get(place)
        if known is None or newer(seen.version, known):
            self._versions[place] = seen.version
        slots = state.slots.get(place)
        if not slots:
            return False
        causes = [state.newest[slot] for slot in slots]
        if any(cause in state.levels for cause in causes):
            self._latest[place] = seen
        else:
            self._latest.pop(place, None)
        drifts = [self._compare(cause, state.held[cause], seen, now_s) for cause in causes if cause in state.held]
        return any(drifts)

    def gone(self, place: Place) -> None:
        """Note that the object is gone."""
        self._versions.pop(place, None)
        self._latest.pop(place, None)

    def wrote(self, cause: Cause, level: FieldsDesired | ObjectDesired, seen: Seen, now_s: float) -> None:
        """Note what the server answered to a write."""
        place = place_of(level)
        before = self._wrote.get(cause)
        pause_s = 0.0
        if before is not None and now_s - before.at_s < PEACE_S:
            pause_s = min(PATIENCE_S, max(1.0, before.pause_s * 2))
        self._wrote[cause] = Wrote(seen.version, drift.says(level, seen), now_s, pause_s)
        self._drifted.pop(cause, None)
        known = self._versions.get(place)
        if known is None or newer(seen.version, known):
            self._versions[place] = seen.version
        latest = self._latest.pop(place, None)
        if latest is not None:
            self._compare(cause, level, latest, now_s)

    def keep(self, state: GatewayState) -> None:
        """Forget levels that have ended."""
        self._wrote = {cause: wrote for cause, wrote in self._wrote.items() if cause in state.held}
        self._drifted = {cause: at_s for cause, at_s in self._drifted.items() if cause in state.held}

    def _compare(self, cause: Cause, level: FieldsDesired | ObjectDesired, seen: Seen, now_s: float) -> bool:
        wrote = self._wrote.get(cause)
        if wrote is not None and not newer(seen.version, wrote.version):
            return False
        if drift.says(level, seen) == (wrote.said if wrote else drift.wanted(level)):
            self._drifted.pop(cause, None)
            return False
        self._drifted.setdefault(cause, wrote.at_s + wrote.pause_s if wrote else now_s)
        return True


def newer(version: str, than: str) -> bool:
    """Whether one resourceVersion came after another; those of one resource grow as numbers."""
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than
