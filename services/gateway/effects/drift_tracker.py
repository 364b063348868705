"""Versions of objects, and desired states that another client has overwritten: observations compared with our own
writes.

A watch delivers our own writes too, and may deliver an older state late. An observation that is not newer than our
write is ignored; a newer one whose fields differ from the server's response to our write is drift. The response counts,
not the desired state, because a server may normalise a value (`1000m` to `1`).

A desired state that was given up is written again after growing pauses, however long the API server does not take it
or the permission is missing.

Kept in memory only: after a restart every object is listed, so drift is detected again, at the price of one write
without effect for each desired state with a normalised value.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from services.gateway.effects import desired_state_comparison
from services.gateway.effects.intent_types import ObjectRef, object_ref
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.state import GatewayState
from shared.events import Cause
from shared.events.intents import FieldsDesired, ObjectDesired

REWRITE_PAUSE_MAX_S = 64.0
"""A desired state that is always overwritten is rewritten at once, then after 1, 2, 4, ... up to this many seconds."""

REWRITE_RESET_S = 600.0
"""After this long without drift the next one is answered at once again."""


RETRY_PAUSE_MAX_S = 30.0
"""A desired state that was given up is tried again after 1, 2, 4, ... up to this many seconds, less up to half."""

RETRY_SCAN_S = 0.2


class LastWrite(NamedTuple):
    """Our newest write of a desired state.

    Attributes:
        version: resourceVersion of the object after it.
        fields: the object's values of the desired state's fields after it.
        pause_s: pause between drift and the next write.
    """

    version: str
    fields: Any
    at_s: float
    pause_s: float


class Retry(NamedTuple):
    """The next try of a desired state that was given up, and the pause before it without jitter."""

    at_s: float
    pause_s: float


class Seen(NamedTuple):
    """An object as it was last seen."""

    version: str
    uid: str


class DriftTracker:
    """Compares observations with our writes. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, Seen]] = {}  # resource -> key -> the newest one
        self._last_writes: dict[Cause, LastWrite] = {}
        self._retries: dict[Cause, Retry] = {}
        self._next_scan_s = 0.0
        self._drifted: dict[Cause, float] = {}  # desired state -> earliest time of its next write
        self._latest: dict[ObjectRef, ObservedObject] = {}  # of objects with a desired state in flight

    def version(self, ref: ObjectRef, uid: str = "") -> str:
        """Returns the newest known resourceVersion; empty if there is none.

        Args:
            uid: of the object that is meant, if that is known: the version of another one of its name is not returned.
        """
        seen = self._versions.get(ref.resource, {}).get(ref.key)
        return seen.version if seen is not None and uid in ("", seen.uid) else ""

    def drifted(self, now_s: float) -> list[Cause]:
        """Returns the desired states to write again now."""
        return [cause for cause, at_s in self._drifted.items() if at_s <= now_s]

    def to_retry(self, state: GatewayState, now_s: float) -> Iterator[Cause]:
        """Yields the desired states that were given up and may be tried again; of one object only the first.

        After a restart each is tried at once.
        """
        if now_s < self._next_scan_s:
            return
        refs: dict[ObjectRef, None] = {}
        for cause, desired in state.intents.given_up.items():
            ref = object_ref(desired)
            if ref not in refs and (cause not in self._retries or self._retries[cause].at_s <= now_s):
                yield cause
            refs[ref] = None
        # Thousands may wait: unless more are due than may start, they are not examined for each event.
        self._next_scan_s = now_s + RETRY_SCAN_S

    def not_written(self, cause: Cause, now_s: float) -> None:
        """Records that a desired state was given up, or tried again in vain."""
        before = self._retries.get(cause)
        pause_s = min(RETRY_PAUSE_MAX_S, before.pause_s * 2) if before else 1.0
        self._retries[cause] = Retry(now_s + pause_s * random.uniform(0.5, 1), pause_s)  # noqa: S311

    def observed(self, state: GatewayState, ref: ObjectRef, seen: ObservedObject, now_s: float) -> bool:
        """Records an observation; returns whether a desired state must be written again because of it."""
        self._set_version(ref, seen)
        causes = state.intents.newest_of(ref)
        if not causes:
            return False
        # While a write is in flight its resulting version is unknown: the observation is compared once it has ended.
        if any(cause in state.intents.desired for cause in causes):
            self._latest[ref] = seen
        else:
            self._latest.pop(ref, None)
        drifts = [
            self._compare(cause, state.intents.applied[cause], seen, now_s)
            for cause in causes
            if cause in state.intents.applied
        ]
        return any(drifts)

    def deleted(self, ref: ObjectRef) -> None:
        """Forgets a deleted object."""
        self._versions.get(ref.resource, {}).pop(ref.key, None)
        self._latest.pop(ref, None)

    def wrote(self, cause: Cause, desired: FieldsDesired | ObjectDesired, seen: ObservedObject, now_s: float) -> None:
        """Records the object that the server returned for a write."""
        ref = object_ref(desired)
        before = self._last_writes.get(cause)
        pause_s = 0.0
        if before is not None and now_s - before.at_s < REWRITE_RESET_S:
            pause_s = min(REWRITE_PAUSE_MAX_S, max(1.0, before.pause_s * 2))
        self._last_writes[cause] = LastWrite(
            seen.version, desired_state_comparison.current_fields(desired, seen), now_s, pause_s
        )
        self._drifted.pop(cause, None)
        self._retries.pop(cause, None)
        self._set_version(ref, seen)
        latest = self._latest.pop(ref, None)
        if latest is not None:
            self._compare(cause, desired, latest, now_s)

    def forget_ended(self, state: GatewayState) -> None:
        """Forgets desired states that are no longer applied, or no longer given up."""
        self._retries = {cause: retry for cause, retry in self._retries.items() if cause in state.intents.given_up}
        self._last_writes = {
            cause: write for cause, write in self._last_writes.items() if cause in state.intents.applied
        }
        self._drifted = {cause: at_s for cause, at_s in self._drifted.items() if cause in state.intents.applied}

    def _set_version(self, ref: ObjectRef, seen: ObservedObject) -> None:
        versions = self._versions.setdefault(ref.resource, {})
        known = versions.get(ref.key)
        if known is None or newer(seen.version, known.version):
            versions[ref.key] = Seen(seen.version, seen.uid)

    def _compare(
        self, cause: Cause, desired: FieldsDesired | ObjectDesired, seen: ObservedObject, now_s: float
    ) -> bool:
        if isinstance(desired, FieldsDesired) and desired.uid and desired.uid != seen.uid:
            # Another object of the same name. The API server does not compare the uid in a patch of a custom resource's
            # status, so that a write would reach it.
            self._drifted.pop(cause, None)
            return False
        last = self._last_writes.get(cause)
        if last is not None and not newer(seen.version, last.version):
            return False
        if desired_state_comparison.current_fields(desired, seen) == (
            last.fields if last else desired_state_comparison.desired_patch(desired)
        ):
            self._drifted.pop(cause, None)
            return False
        self._drifted.setdefault(cause, last.at_s + last.pause_s if last else now_s)
        return True


def newer(version: str, than: str) -> bool:
    """Compares two resourceVersions; those of one resource are growing numbers."""
    try:
        return int(version) > int(than)
    except ValueError:
        # Kubernetes calls the version opaque: one that is no number is taken as newer unless it is the same.
        return version != than
