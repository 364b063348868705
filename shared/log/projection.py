"""A State and its position in every context it follows: folded together, read from Postgres, replaced as one.

Nothing here depends on the bus; a rebuild and a replay need no more than this.
"""

import gc
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

from shared.events import Event, RecordedEvent
from shared.fold import BeginsLate, State
from shared.log.codec import Codec, Unreadable
from shared.log.position import LogRewound, Position
from shared.log.reader import LogReader, MissingEvents, Page
from shared.log.service_store import ServiceStore, Snapshot

log = logging.getLogger(__name__)

Reads = Mapping[str, Sequence[type[Event]]]

BeforeFold = Callable[[RecordedEvent], None]

HOOKED_AT_ONCE = 64
"""Seqs that are folded at a time while a hook runs before each record: a hook may take a millisecond or two."""


class Projection:
    """A State on its way along the log.

    Attributes:
        state: the fold; `state.positions` has the seqs of `positions`.
        positions: context -> last event folded or skipped, or received during a hold.
        folded_positions: context -> last event folded or skipped; the same as `positions` except during a hold.
        skips: events that are skipped by a person's decision; the State is a function of the positions and of these.
        folded: events folded or skipped since it was made.
        before_fold: a hook that is called with each record just before it is applied, with the State as it is then.
        sound: False once a fold broke off before its last event; such a State must not be used.
    """

    def __init__(
        self, reader: LogReader, codecs: Mapping[str, Codec], state: State, skips: Collection[tuple[str, int]] = ()
    ) -> None:
        self.state = state
        self.positions = dict.fromkeys(codecs, Position())
        self.folded_positions = dict(self.positions)
        self.folded = 0
        self.sound = True
        self.before_fold: BeforeFold | None = None
        self._held: list[tuple[str, list[RecordedEvent], Position]] | None = None
        self._reader = reader
        self._codecs = codecs
        self._skips = frozenset(skips)
        self._skipped = {name: sorted(seq for context, seq in skips if context == name) for name in codecs}

    def start_from(self, snapshot: Snapshot) -> None:
        """Restores a snapshot; called once, before anything is folded."""
        collects = gc.isenabled()
        gc.disable()  # all new objects stay: collections would traverse them again and again
        try:
            self.state.restore(snapshot.data)
        finally:
            if collects:
                gc.enable()
        for name, position in snapshot.positions.items():
            if (
                name in self.positions and position.seq
            ):  # an empty context has no position, as in a fold from its beginning
                self.positions[name] = self.folded_positions[name] = position
                self.state.positions[name] = position.seq

    async def load(self, store: ServiceStore) -> None:
        """Begins at the newest snapshot that agrees with the log, or at the beginning, and reads to the heads.

        Raises:
            NewerState: a later release has written a snapshot.
            Unreadable: an event cannot be decoded or folded.
            MissingEvents: the log has a hole.
            LogRewound: the log was rewound meanwhile.
        """
        snapshot = await store.newest_snapshot(self.state.SCHEMA, self._reader)
        if snapshot is not None:
            self.start_from(snapshot)
        for name in self.positions:
            await self.read_to(name, (await self._reader.head(name)).seq)

    async def read_to(self, name: str, upto: int) -> None:
        """Folds a context to a committed seq.

        Batches from the bus may be folded in between: records read of them are then dropped. Raises as `load` does.
        """
        missed: Position | None = None
        while (position := self.positions[name]).seq < upto:
            end = upto if self.before_fold is None else min(upto, position.seq + HOOKED_AT_ONCE)
            pages = self._reader.pages(name, position, end, self._codecs[name], self._skipped[name])
            try:
                async with aclosing(pages):
                    async for page in pages:
                        self._take_page(name, page)
            except MissingEvents:
                if (await self._reader.head(name)).seq < upto:
                    raise LogRewound(name, position, None) from None  # rewound since the head was read
                begin = await self._reader.oldest(name) if position.seq == 0 else None
                if begin is None or begin.seq == 0:
                    # A rewound log has a hole for a moment, until its next writer has filled the seqs again.
                    if missed == position:
                        raise
                    missed = position
                    continue
                await self._begin(name, begin)

    async def _begin(self, name: str, begin: Position) -> None:
        """Begins behind what retention has dropped, with the events of it that were carried forward."""
        records = await self._reader.carried_forward(name, begin.seq, self._codecs[name], self._skipped[name])
        if await self._reader.oldest(name) != begin or self.positions[name].seq:
            return  # one more partition was dropped meanwhile: what that held is carried forward too
        log.warning(
            "the fold begins at the oldest kept event",
            extra={"context": name, "seq": begin.seq + 1, "carried_forward": len(records)},
        )
        self.positions[name] = begin
        self._fold(name, records, begin)
        if isinstance(self.state, BeginsLate):
            self.state.history_begins(name, begin.seq)

    def _take_page(self, name: str, page: Page) -> None:
        stands = self.positions[name].seq
        if stands < page.end.seq:
            records = page.records
            if records and records[0].seq <= stands:
                records = [record for record in records if record.seq > stands]
            self.take(name, records, page.end)

    async def agree(self, name: str) -> None:
        """Compares the digest at our position with the log's.

        Raises:
            LogRewound: they differ.
        """
        position = self.positions[name]
        found = await self._reader.digest_at(name, position.seq)
        if found != position.digest and position == self.positions[name]:  # where more was folded, the chain held
            raise LogRewound(name, position, found)

    def take(self, name: str, records: Iterable[RecordedEvent], end: Position) -> None:
        """Folds consecutive events of a context that end at `end`; during a hold, keeps them for its end.

        Raises:
            Unreadable: the State refused one.
        """
        self.positions[name] = end
        if self._held is None:
            self._fold(name, records, end)
        else:
            self._held.append((name, list(records), end))

    def hold(self) -> None:
        """Keeps the State as it is until `release`: a decision reads it while it awaits something."""
        assert self._held is None, "decisions are made one at a time"
        self._held = []

    def release(self) -> bool:
        """Ends a hold, and folds the records received meanwhile, in the order of their arrival. Raises as `take` does.

        Returns:
            False when nothing was received.
        """
        held, self._held = self._held, None
        for name, records, end in held or ():
            self._fold(name, records, end)
        return bool(held)

    def _fold(self, name: str, records: Iterable[RecordedEvent], end: Position) -> None:
        apply, skips = self.state.apply if self.before_fold is None else self._apply_with_hook, self._skips
        for record in records:
            if skips and (name, record.seq) in skips:
                continue
            try:
                apply(record)
            except Exception as error:  # any exception of a fold means that the event cannot be folded
                self.sound = False
                raise Unreadable(name, record.seq, error) from error
        self.folded += end.seq - self.folded_positions[name].seq
        self.folded_positions[name] = end
        self.state.positions[name] = end.seq

    def _apply_with_hook(self, record: RecordedEvent) -> None:
        assert self.before_fold is not None, "selected only with a hook"
        self.before_fold(record)
        self.state.apply(record)

    def skips(self, name: str, seq: int) -> bool:
        """Reports whether an event is skipped."""
        return (name, seq) in self._skips
