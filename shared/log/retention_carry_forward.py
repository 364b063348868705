"""Chooses the events that outlast their partition, and makes the copies that are appended before it is dropped.

A State is a fold from the oldest kept event. What it owes to older events comes from copies of those that still hold:
live objects, open intents, newest desired states. Those are chosen by the writer's State as it is where the
copies are appended, so that a change or a deletion that was appended meanwhile wins. A fold that begins late reads the
copies first, as they were recorded (`LogReader.carried_forward`); a State that has folded the events ignores them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

import msgspec

from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.log import CarriedForward
from shared.log.codec import Codec
from shared.log.position import UNKNOWN, Position
from shared.log.reader import COLUMNS, PAGE, LogReader, Row, at_us, read_record
from shared.log.table_names import table_of


class Kept(NamedTuple):
    """The events that are still in the logs of other contexts.

    Attributes:
        has: reports whether an event is, itself or as a copy.
        since_ns: instant of the oldest of them, copies apart; far ahead when there is none.
    """

    has: Callable[[Cause], bool]
    since_ns: int


Holds = Callable[[RecordedEvent], bool]


class RunningBalances(Protocol):
    """A fold of one context alone, of which no single event holds a value: sums, or differences."""

    def apply(self, event: Event) -> object:
        """Folds one event."""
        ...

    def opening(self, most: int) -> Sequence[Event]:
        """Returns at most so many events that give the same balances; they replace all earlier ones."""
        ...


class Opening(NamedTuple):
    """Balances that are carried forward as a whole, as they are after the last dropped event.

    Attributes:
        kinds: the types that are folded, that of the opening events among them.
        begin: makes, of the writer's State, empty balances with its settings.
    """

    kinds: tuple[type[Event], ...]
    begin: Callable[[Any], RunningBalances]


class CarryForward(NamedTuple):
    """Events of a context that may outlast their partition.

    Attributes:
        kinds: the types that are considered.
        subject: what an event is about; of one subject only the newest event is carried forward.
        holds: makes, of the writer's State, the test whether an event still holds.
        ends: types that end their subject; they are not carried forward themselves.
        with_positions: each copy gets the positions that its append rested on, of which only the first event has them.
        opening: balances that follow from all events of the context, not from the newest of each subject.
    """

    kinds: tuple[type[Event], ...]
    subject: Callable[[RecordedEvent], Hashable]
    holds: Callable[[Any, Kept], Holds]
    ends: tuple[type[Event], ...] = ()
    with_positions: bool = False
    opening: Opening | None = None


class Candidate(NamedTuple):
    """An event of the partition that is dropped: the newest of its subject there.

    Attributes:
        is_basis: it is carried forward whether it holds or not: the next events, which are kept, may belong to its
            append and rest on its positions; or it ends what such a copy says.
    """

    record: RecordedEvent
    correlation: str | None
    is_basis: bool = False


async def candidates(
    reader: LogReader, context: str, after: int, upto: int, rule: CarryForward
) -> Mapping[Hashable, Candidate]:
    """Returns the newest event of each subject with `after < seq <= upto`, as it was recorded.

    An event that was carried forward into that range counts as itself.
    """
    codec = Codec((*rule.kinds, *rule.ends))
    earlier = await reader.carried_forward(context, after, codec) if after > 0 and rule.with_positions else ()
    found = Newest(rule, earlier)
    while after < upto:
        kinds = [*codec.names, CarriedForward.type_name()]
        for row in await _page(reader, context, after, min(after + PAGE, upto), kinds):
            if (record := read_record(row, codec)) is not None:
                found.add(record, row.correlation, is_copy=row.type == CarriedForward.type_name())
        after += PAGE
    return found.candidates()


class Newest:
    """The newest event of each subject among events that are added in the order of the log."""

    def __init__(self, rule: CarryForward, earlier: Sequence[RecordedEvent] = ()) -> None:
        """Begins behind what was carried forward earlier: a partition may begin in the middle of an append."""
        self._rule = rule
        self._newest: dict[Hashable, Candidate] = {}
        self._seen = earlier[-1].event.seen if earlier else None
        self._staying: dict[Hashable, set[int]] = {}  # subject -> seqs of older events of it whose copies are kept
        for record in earlier:
            self._staying.setdefault(rule.subject(record), set()).add(record.seq)
        self._basis: Candidate | None = None

    def add(self, record: RecordedEvent, correlation: str | None = None, *, is_copy: bool = False) -> None:
        """Adds an event, or one of which the row is a copy."""
        if self._rule.with_positions and not is_copy:
            if record.event.seen:
                self._seen = record.event.seen
                self._basis = Candidate(record, correlation, is_basis=True)
            elif self._seen:
                event = msgspec.structs.replace(record.event, seen=self._seen)
                record = msgspec.structs.replace(record, event=event)
        subject = self._rule.subject(record)
        if is_copy:
            self._staying.get(subject, set()).discard(record.seq)  # the copy is dropped too
        before = self._newest.get(subject)
        if before is None or before.record.seq <= record.seq:
            self._newest[subject] = Candidate(record, correlation)

    def candidates(self) -> Mapping[Hashable, Candidate]:
        """Returns those whose subject has not ended, and the last event that has positions.

        What replaced or ended an earlier copy that stays, or the last event that has positions, is carried forward in
        any case: such an event may have been replaced or ended, and would hold again.
        """
        ends, basis = self._rule.ends, self._basis
        replaced = {} if basis is None else {self._rule.subject(basis.record): basis.record.seq}
        found: dict[Hashable, Candidate] = {}
        for subject, one in self._newest.items():
            older = (*self._staying.get(subject, ()), replaced.get(subject, one.record.seq))
            if min(older) < one.record.seq:
                found[subject] = one._replace(is_basis=True)
            elif not isinstance(one.record.event, ends):
                found[subject] = one
        if basis is not None:
            subject = self._rule.subject(basis.record)
            is_newest = subject in found and found[subject].record.seq == basis.record.seq
            found[subject if is_newest else Candidate] = basis
        return found


def copies(found: Sequence[Candidate], holds: Holds) -> list[Draft]:
    """Returns the copies to append of those that still hold."""
    return [
        Draft(
            CarriedForward(
                name=one.record.event.key,
                original=f"{one.record.context}/{one.record.seq}",
                event=msgspec.Raw(msgspec.json.encode(one.record.event)),
                at_us=one.record.at_ns // 1000,
                cause=str(one.record.cause or ""),
            ),
            correlation=one.correlation,
        )
        for one in found
        if one.is_basis or holds(one.record)
    ]


async def opening_copies(
    reader: LogReader, context: str, after: int, upto: int, balances: RunningBalances, kinds: Sequence[type[Event]]
) -> list[Draft]:
    """Returns the opening balances behind `upto`: the fold of the previous ones and of the events `after < seq <= upto`.

    They rest on nothing but events that are dropped, so no change meanwhile concerns them.
    """
    codec = Codec(kinds)
    if after:
        for record in await reader.carried_forward(context, after, codec):
            balances.apply(record.event)
    at_ns = 0
    async with aclosing(reader.pages(context, Position(after, UNKNOWN), upto, codec)) as pages:
        async for page in pages:
            for record in page.records:
                balances.apply(record.event)
                at_ns = record.at_ns
    return opening_drafts(context, after, upto, balances, at_ns)


def opening_drafts(context: str, after: int, upto: int, balances: RunningBalances, at_ns: int) -> list[Draft]:
    """Returns the copies that stand for balances, with the last of the dropped seqs."""
    events = balances.opening(upto - after)
    return [
        Draft(
            CarriedForward(
                name=event.key,
                original=f"{context}/{seq}",
                event=msgspec.Raw(msgspec.json.encode(event)),
                at_us=at_ns // 1000,
            )
        )
        for seq, event in enumerate(events, upto - len(events) + 1)
    ]


async def kept_events(reader: LogReader, contexts: Sequence[str]) -> Kept:
    """Returns which events of these contexts are still in their logs."""
    oldest: dict[str, int] = {}
    since_us: list[int] = []
    originals: set[str] = set()
    for context in contexts:
        table = table_of(context)
        async with reader.database.reading() as connection:
            first = f"select seq, at from {table} where context = $1 order by seq limit 1"  # noqa: S608
            if (row := await connection.fetchrow(first, context)) is not None:
                oldest[context] = row["seq"]
                since_us.append(at_us(row["at"]))
            copied = f"select convert_from(data, 'UTF8')::json ->> 'original' from {table} where type = $1"  # noqa: S608
            originals.update(original for (original,) in await connection.fetch(copied, CarriedForward.type_name()))
    return Kept(
        has=lambda cause: cause.seq >= oldest.get(cause.context, 0) or str(cause) in originals,
        since_ns=min(since_us, default=2**62) * 1000,
    )


async def _page(reader: LogReader, context: str, after: int, upto: int, kinds: list[str]) -> list[Row]:
    sql = (
        f"select {COLUMNS} from {table_of(context)} "  # noqa: S608
        "where context = $1 and seq > $2 and seq <= $3 and type = any($4) order by seq"
    )
    async with reader.database.reading() as connection:
        return [Row(*row) for row in await connection.fetch(sql, context, after, upto, kinds)]
