"""Whether an object still says what a level says, seen through the level's own patch: nothing else of the object counts."""

from typing import Any

import msgspec

from services.gateway.watch.field_filter import Seen
from shared.events.intents import FieldsDesired, ObjectDesired


def wanted(level: FieldsDesired | ObjectDesired) -> dict[str, Any]:
    """What the level says, as a JSON merge patch: an absent field is null."""
    return level.patch if isinstance(level, FieldsDesired) else level.body or {}


def through(patch: Any, value: Any) -> Any:
    """The parts of an object that a merge patch names, with null for what is absent."""
    if not isinstance(patch, dict):
        return value
    there = value if isinstance(value, dict) else {}
    return {name: through(part, there.get(name)) for name, part in patch.items()}


def body_of(seen: Seen) -> Any:
    """The kept part of an object as JSON has it, with lists as a level from the log has them."""
    return seen.object if isinstance(seen.object, dict) else msgspec.json.decode(msgspec.json.encode(seen.object))


def says(level: FieldsDesired | ObjectDesired, seen: Seen) -> Any:
    """What an object says about the level's fields."""
    return through(wanted(level), body_of(seen))


def agrees(level: FieldsDesired | ObjectDesired, seen: Seen) -> bool:
    """Whether the object says what the level says, letter by letter.

    A server may write a value in another way (`1000m` as `1`), and fields that are not kept read as absent; so a level that
    does not agree by this measure may have been written all the same. What the server answered to the write tells.
    """
    return bool(says(level, seen) == wanted(level))
