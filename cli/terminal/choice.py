"""Choice of contexts and event types by name; a name that the log lacks is an error that says what there is."""

from collections.abc import Sequence
from difflib import get_close_matches

from shared.errors import KoordError


def chosen_contexts(there: Sequence[str], name: str | None) -> list[str]:
    """Returns the context of this name, or all of them without a name.

    Raises:
        KoordError: there is none of this name.
    """
    if not name:
        return list(there)
    if name not in there:
        raise KoordError(f"there is no log {name!r}; there are {', '.join(there)}")
    return [name]


def check_event_type(name: str) -> None:
    """Checks that the end of an event type's name is `name`, with or without a version.

    Raises:
        KoordError: there is none; with the names that look alike.
    """
    from shared.events import EVENT_TYPES

    short = {full.rpartition(".v")[0].rpartition(".")[2] for full in EVENT_TYPES}
    if name in short or any(full == name or full.endswith(f".{name}") for full in EVENT_TYPES):
        return
    alike = get_close_matches(name, short, n=3)
    hint = f"did you mean {' or '.join(alike)}?" if alike else "docs/asyncapi.json lists all"
    raise KoordError(f"there is no event type {name!r}; {hint}")
