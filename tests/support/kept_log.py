"""A log in memory whose partitions are dropped: what is appended, what retention copies, and a fold of what is kept."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.log import CarriedForward
from shared.fold import BeginsLate
from shared.log.codec import Codec
from shared.log.retention_carry_forward import CarryForward, Kept, Newest, copies, opening_drafts
from shared.runtime.service import Service


class Entry(NamedTuple):
    """A row: an event, or a copy of one."""

    record: RecordedEvent
    is_copy: bool = False


class KeptLog:
    """Contexts from which the oldest events have been dropped.

    Attributes:
        rows: context -> its rows, the oldest kept first.
        base: context -> seq of the last dropped row.
        heads: context -> seq of the last row.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[Entry]] = {}
        self.base: dict[str, int] = {}
        self.heads: dict[str, int] = {}

    def append(self, context: str, record: RecordedEvent, *, is_copy: bool = False) -> None:
        """Appends a row; an event must have the next seq."""
        self.heads[context] = self.heads.get(context, 0) + 1
        assert is_copy or record.seq == self.heads[context]
        self.rows.setdefault(context, []).append(Entry(record, is_copy))

    def retain(self, context: str, upto: int, rule: CarryForward, state: Any) -> list[Draft]:
        """Drops what a context has up to a seq, after the copies of what still holds by the writer's State."""
        newest = Newest(rule, self.carried(context))
        first = self.base.get(context, 0) + 1
        gone = self.rows[context][: upto - first + 1]
        codec = Codec((*rule.kinds, *rule.ends))
        for record, is_copy in gone:
            if isinstance(record.event, (*rule.kinds, *rule.ends)):
                newest.add(record, is_copy=is_copy)
        drafts = copies(list(newest.candidates().values()), rule.holds(state, self.kept(context)))
        for draft in drafts:
            assert isinstance(draft.event, CarriedForward)
            copied = codec.original(draft.event)
            assert copied is not None
            self.append(context, copied, is_copy=True)
        self._open(context, upto, rule, state, [record for record, is_copy in gone if not is_copy])
        del self.rows[context][: len(gone)]
        self.base[context] = upto
        return drafts

    def _open(self, context: str, upto: int, rule: CarryForward, state: Any, gone: Sequence[RecordedEvent]) -> None:
        """Appends the opening balances behind a seq: those behind the last dropped one, and what came after."""
        if rule.opening is None:
            return
        balances, base = rule.opening.begin(state), self.base.get(context, 0)
        for record in (*self.carried(context), *gone):
            if isinstance(record.event, rule.opening.kinds):
                balances.apply(record.event)
        codec = Codec(rule.opening.kinds)
        for draft in opening_drafts(context, base, upto, balances, 0):
            assert isinstance(draft.event, CarriedForward)
            copied = codec.original(draft.event)
            assert copied is not None
            self.append(context, copied, is_copy=True)

    def carried(self, context: str) -> list[RecordedEvent]:
        """Returns the events before the oldest kept one that were carried forward, in their order."""
        base = self.base.get(context, 0)
        copied = [entry.record for entry in self.rows.get(context, []) if entry.is_copy and entry.record.seq <= base]
        found = {(record.seq, record.event.type_name()): record for record in copied}
        return [found[place] for place in sorted(found)]

    def kept(self, own: str) -> Kept:
        """Returns the events that are still in other contexts."""
        originals = {
            Cause(context, entry.record.seq) for context, rows in self.rows.items() for entry in rows if entry.is_copy
        }
        return Kept(
            has=lambda cause: cause.seq > self.base.get(cause.context, 0) or cause in originals,
            since_ns=min(
                (
                    entry.record.at_ns
                    for context, rows in self.rows.items()
                    if context != own
                    for entry in rows
                    if not entry.is_copy
                ),
                default=2**62,
            ),
        )

    def fold(self, state: Any, follows: Mapping[str, Collection[type[Event]]], random: Random) -> Any:
        """Folds what a service follows from the oldest kept event, the contexts interleaved at random."""
        queues = {name: list(self._steps(state, name, tuple(kinds))) for name, kinds in follows.items()}
        while left := [name for name, steps in queues.items() if steps]:
            queues[random.choice(left)].pop(0)()
        return state

    def _steps(self, state: Any, context: str, kinds: tuple[type[Event], ...]) -> Iterable[Callable[[], None]]:
        base, rows = self.base.get(context, 0), self.rows.get(context, [])
        old = [record for record in self.carried(context) if isinstance(record.event, kinds)]
        if base:
            yield lambda: self._begin(state, context, old)
        for seq, entry in enumerate(rows, base + 1):
            yield lambda seq=seq, entry=entry: self._step(state, context, seq, entry, kinds)  # type: ignore[misc]

    def _begin(self, state: Any, context: str, old: Iterable[RecordedEvent]) -> None:
        for record in old:
            state.apply(record)
        state.positions[context] = self.base[context]
        if isinstance(state, BeginsLate):
            state.history_begins(context, self.base[context])

    @staticmethod
    def _step(state: Any, context: str, seq: int, entry: Entry, kinds: tuple[type[Event], ...]) -> None:
        if not entry.is_copy and isinstance(entry.record.event, kinds):
            state.apply(entry.record)
        state.positions[context] = seq


class Follower(NamedTuple):
    """A service that follows the log, with its live State: the fold of everything, of which copies are no part."""

    follows: Mapping[str, Collection[type[Event]]]
    state: Any


class GrowingLog(KeptLog):
    """A log that grows event by event, with the live States of services.

    Attributes:
        followers: by the name of the service.
        origins: place of an event in this log -> its place in the history that was added.
    """

    def __init__(self, services: Iterable[Service]) -> None:
        super().__init__()
        self.rules: dict[str, tuple[str, CarryForward]] = {}
        self.followers: dict[str, Follower] = {}
        self._places: dict[Cause, int] = {}
        self.origins: dict[Cause, Cause] = {}
        self._records: dict[Cause, RecordedEvent] = {}
        for service in services:
            member = service.member(0, 1)
            self.followers[service.name] = Follower(member.follows, service.new_state())
            if service.carry_forward is not None:
                self.rules[member.writes] = service.name, service.carry_forward

    def add(self, record: RecordedEvent) -> None:
        """Appends an event of a history; its seq, and that of its cause, are what they are in this log."""
        context = record.context
        seq = self.heads.get(context, 0) + 1
        self._places[Cause(context, record.seq)] = seq
        self.origins[Cause(context, seq)] = Cause(context, record.seq)
        cause, event = record.cause, record.event
        if cause is not None:
            cause = Cause(cause.context, self._places[cause])
        if event.seen:
            moved = {name: self._places.get(Cause(name, at), 0) for name, at in event.seen.items()}
            event = msgspec.structs.replace(event, seen=moved)
        record = RecordedEvent(context, seq, event, record.at_ns, cause)
        self.append(context, record)
        self._records[Cause(context, seq)] = record
        for follows, state in self.followers.values():
            if context in follows:
                self._step(state, context, seq, Entry(record), tuple(follows[context]))

    def extend(self, history: Sequence[RecordedEvent], begin: int) -> int:
        """Appends a history from an index on; returns its length."""
        for record in history[begin:]:
            self.add(record)
        return len(history)

    def at(self, place: Cause) -> RecordedEvent:
        """Returns an event of this log, also one that has been dropped."""
        return self._records[place]

    def drop(self, context: str, upto: int) -> list[Draft]:
        """Drops what a context has up to a seq."""
        name, rule = self.rules[context]
        drafts = self.retain(context, upto, rule, self.followers[name].state)
        for follows, state in self.followers.values():
            if context in follows:
                state.positions[context] = self.heads[context]
        return drafts

    def folded_anew(self, name: str, new_state: Callable[[], Any], random: Random) -> Any:
        """Returns the State of a service, folded from the oldest kept events."""
        return self.fold(new_state(), self.followers[name].follows, random)
