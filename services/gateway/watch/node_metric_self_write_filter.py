"""Filter of watch events of NodeMetrics that only repeat our own write of the object's status.

The status is in the log already: as desired state (`FieldsDesired`), and as the report in `metrics-*` from which that
was made. With 10,000 nodes these watch events would be most of the log. An observation is dropped if both hold:

- its status equals the newest desired states of the object's status (empty fields count as absent, since the kept
  object has no empty fields);
- every other field equals that of the last recorded observation.

A change by any other client is recorded with the whole object. The filter's memory is not part of the State: after a
restart each NodeMetric is recorded once more.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from services.gateway.effects.desired_state_comparison import fields_named, json_body
from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.resources import NODE_METRICS
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.state import GatewayState
from shared.events.intents import FieldsDesired

_SORTED = msgspec.json.Encoder(order="sorted")


class _OtherFields(NamedTuple):
    """Uid of an object, and the digest of its fields outside of the desired states."""

    uid: str
    digest: bytes


class NodeMetricSelfWriteFilter:
    """Drops observations that repeat our own writes; keeps one digest of each NodeMetric."""

    def __init__(self) -> None:
        self._recorded: dict[ObjectRef, _OtherFields] = {}

    def without_self_writes(
        self, state: GatewayState, seen: dict[ObjectRef, ObservedObject | None]
    ) -> dict[ObjectRef, ObservedObject | None]:
        """Returns the observations to compare with the log, in the same order, and keeps their digests as recorded."""
        return {ref: each for ref, each in seen.items() if not self._is_self_write(state, ref, each)}

    def _is_self_write(self, state: GatewayState, ref: ObjectRef, seen: ObservedObject | None) -> bool:
        if ref.resource != NODE_METRICS.name:
            return False
        if seen is None:
            self._recorded.pop(ref, None)
            return False
        body = json_body(seen)
        patches = [desired.patch for desired in _desired_status(state, ref)]
        rest = body
        for patch in patches:
            rest = _without(patch, rest)
        now, before = _OtherFields(seen.uid, _digest(_without_empty(rest))), self._recorded.get(ref)
        self._recorded[ref] = now
        known = state.known.get(ref.resource, {}).get(ref.key)
        return (
            bool(patches)
            and now == before
            and known is not None
            and known.uid == seen.uid
            and all(_without_empty(fields_named(patch, body)) == _without_empty(patch) for patch in patches)
        )


def _desired_status(state: GatewayState, ref: ObjectRef) -> list[FieldsDesired]:
    """Returns the newest desired states of an object's status that are applied or in flight."""
    causes = state.intents.newest_of(ref)
    desired = (state.intents.applied.get(cause) or state.intents.desired.get(cause) for cause in causes)
    return [each for each in desired if isinstance(each, FieldsDesired) and each.subresource == "status"]


def _without(patch: Any, body: Any) -> Any:
    """Returns the fields that a merge patch does not name."""
    if not isinstance(patch, dict) or not isinstance(body, dict):
        return None
    return {name: _without(patch[name], part) if name in patch else part for name, part in body.items()}


def _without_empty(body: Any) -> Any:
    """Removes absent and empty fields, which a kept object does not distinguish."""
    if not isinstance(body, dict):
        return body
    parts = {name: _without_empty(part) for name, part in body.items()}
    return {name: part for name, part in parts.items() if part not in (None, {}, [])}


def _digest(body: Any) -> bytes:
    return blake2b(_SORTED.encode(body), digest_size=16).digest()
