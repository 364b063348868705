"""Records of several contexts in orders in which a follower may read them."""

from collections.abc import Iterable, Iterator
from random import Random

from shared.events import RecordedEvent


def interleaved(records: Iterable[RecordedEvent], random: Random) -> Iterator[RecordedEvent]:
    """Yields records in a random order that keeps the order within each context."""
    left: dict[str, list[RecordedEvent]] = {}
    for record in records:
        left.setdefault(record.context, []).append(record)
    while left:
        context = random.choice(sorted(left))
        yield left[context].pop(0)
        if not left[context]:
            del left[context]
