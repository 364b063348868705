"""Runs a replay: folds the logs to what each recorded decision had seen, repeats it, and compares."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from cli.replay.compare_decisions import Difference, first_difference_of
from cli.replay.recorded_appends import Append, appends
from cli.replay.states_of_history import StatesOfHistory
from cli.terminal.durations import instant_of
from cli.terminal.progress import progress
from shared.errors import KoordError
from shared.events import Draft, RecordedEvent
from shared.events.log import WriterStarted
from shared.fold import State
from shared.kube.instants import SECOND
from shared.log.admin.newest_events import WRITER_KEY, newest
from shared.log.reader import LogReader
from shared.runtime.service import Service, libraries, release


class Replayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a replay.

    Attributes:
        first, last: instants of the first and the last repeated decision; empty without one.
        decisions: that were repeated; equal: those of them without a difference.
        others: appends of the service that are not repeated: statuses, starts of writers, configurations.
        spans_s: from the first to the last; took_s: of this machine.
        releases: that wrote them, with the libraries that they computed with; today: those of the repetition.
        difference: the first one.
    """

    service: str
    first: str
    last: str
    decisions: int
    equal: int
    others: int
    spans_s: float
    took_s: float
    releases: tuple[str, ...]
    today: str
    difference: Difference | None = None


class ServiceReplay(Protocol):
    """Repeats the decisions of one service."""

    service: Service

    def is_repeated(self, append: Append) -> bool:
        """Reports whether an append is a decision that can be repeated."""

    def repeat(self, state: State, append: Append) -> tuple[Sequence[RecordedEvent], Sequence[Draft]]:
        """Returns the recorded events of a decision, and those of its repetition on the State that it had seen."""


WRITERS = 1_000
"""Starts of writers that are looked through for their releases, the newest first."""


class NothingToReplay(KoordError):
    """There is no decision in the range."""


async def replay(log: LogReader, again: ServiceReplay, begin: datetime | None, end: datetime | None) -> Replayed:
    """Repeats the decisions of a service between two instants; all that are kept without them.

    Raises:
        NothingToReplay: the service has decided nothing there.
    """
    context = again.service.writes
    after = 0 if begin is None else await log.last_until(context, begin)
    if kept := await log.oldest(context):
        after = max(after, kept.seq)
    upto = (await log.head(context)).seq if end is None else await log.last_until(context, end)
    states = StatesOfHistory(log, again.service)
    times, equal, others = list[int](), 0, 0
    difference: Difference | None = None
    started = time.monotonic()
    with progress(f"repeating {again.service.name}", max(upto - after, 0)) as advance:
        async for append in appends(log, context, after, upto):
            if again.is_repeated(append):
                state = await states.at(append.seen)
                found = first_difference_of(*again.repeat(state, append))
                equal += found is None
                difference = difference or found
                times.append(append.records[0].event.now_ns or 0)
            else:
                others += 1
            advance(len(append.records))
    if not times:
        raise NothingToReplay(
            f"{again.service.name} decided nothing in that time; `koord events --log {context}` shows what there is"
        )
    return Replayed(
        service=again.service.name,
        first=instant_of(times[0]),
        last=instant_of(times[-1]),
        decisions=len(times),
        equal=equal,
        others=others,
        spans_s=(max(times) - min(times)) / SECOND,
        took_s=time.monotonic() - started,
        releases=await _releases(log, context, after, upto),
        today=_named(release(), libraries()),
        difference=difference,
    )


async def _releases(log: LogReader, context: str, after: int, upto: int) -> tuple[str, ...]:
    """Returns the releases that wrote the events in (after, upto], in their order."""
    found = await newest(log.database, context, [WriterStarted], WRITERS, key=WRITER_KEY)
    names: list[str] = []
    for each in found:
        event = each.record.event
        assert isinstance(event, WriterStarted), "no other type was asked for"
        if each.record.seq <= upto:
            names.append(_named(event.release, event.libraries))
            if each.record.seq <= after:
                break  # it wrote on
    return tuple(dict.fromkeys(reversed(names)))


def _named(of_project: str, with_libraries: Mapping[str, str]) -> str:
    if not with_libraries:
        return of_project
    return f"{of_project} ({', '.join(f'{name} {number}' for name, number in sorted(with_libraries.items()))})"
