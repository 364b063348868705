"""A recorded decision beside its repetition."""

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.events import Draft, RecordedEvent
from shared.events.base import without_basis
from shared.runtime.rebuild import first_difference


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first event of a decision that differs today.

    Attributes:
        event: `context/seq` of the recorded one; of the last one before it where there are more today.
        path: the first part that differs, such as `pods/0/2`; empty where an event is missing, or one more is there.
        recorded, again: the JSON of both; None for an event that is not there.
        seen, now_ns, config: the inputs.
    """

    event: str
    path: str
    recorded: Any
    again: Any
    seen: dict[str, int]
    now_ns: int
    config: str


def first_difference_of(records: Sequence[RecordedEvent], drafts: Sequence[Draft]) -> Difference | None:
    """Compares the events of a decision, bit for bit, with those that it has today; None where they are equal.

    Args:
        records: of the decision, in their order; the first one has its inputs.
    """
    for number in range(max(len(records), len(drafts))):
        record = records[number] if number < len(records) else None
        draft = drafts[number] if number < len(drafts) else None
        before = None if record is None else _encoded(record.event, record.cause)
        now = None if draft is None else _encoded(draft.event, draft.cause)
        if before == now:
            continue
        decoded, again = _decoded(before), _decoded(now)
        path = first_difference(decoded, again) if decoded is not None and again is not None else ()
        last = record or records[-1]
        first = records[0].event
        return Difference(
            f"{last.context}/{last.seq}",
            "/".join(path),
            decoded,
            again,
            first.seen or {},
            first.now_ns or 0,
            first.config or "",
        )
    return None


def _encoded(event: Any, cause: Any) -> bytes:
    """Returns the JSON as it is stored, but for the inputs of the append, with the cause behind it."""
    return msgspec.json.encode([without_basis(event), cause])


def _decoded(encoded: bytes | None) -> Any:
    if encoded is None:
        return None
    event, cause = msgspec.json.decode(encoded)
    return event if cause is None else {**event, "cause": f"{cause['context']}/{cause['seq']}"}
