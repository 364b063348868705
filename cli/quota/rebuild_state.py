"""Folds the ledger's State from the whole log, at its head or at an instant; no service needs to run."""

import time
from datetime import datetime
from typing import NamedTuple

from cli.terminal.progress import progress
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED, LedgerState
from shared.events import EVENT_TYPES, RecordedEvent
from shared.events.log import ConfigApplied
from shared.events.quota import BalancesOpened
from shared.log.admin.newest_events import newest
from shared.log.codec import Codec
from shared.log.position import Position
from shared.log.reader import LogReader, at_us

RECORDED_CONFIGS = 10_000
"""Of these the one in force at an instant is taken; the ledger records one at each start."""


class Folded(NamedTuple):
    """The State after the last event read.

    Attributes:
        settings: of the ledger.
        own: the events of the `quota` context; computed where the log has none.
        is_computed: no ledger has written; the numbers are those that it would have recorded.
    """

    state: LedgerState
    own: list[RecordedEvent]
    settings: LedgerSettings
    is_computed: bool


async def fold_log(log: LogReader, until: datetime | None = None) -> Folded:
    """Reads and folds the contexts that the ledger follows."""
    there = set(await log.contexts())
    settings = await settings_of(log, until) if "quota" in there else LedgerSettings()
    state, own = settings.new_state(), []
    for context in ("cluster", "scheduling", "quota"):
        if context not in there:
            continue
        # Of the ledger's own log everything: that none is missing is part of what `verify` checks.
        codec = Codec(list(EVENT_TYPES.values() if context == "quota" else FOLDED[context]))
        begin = await log.oldest(context) or Position()
        own += await _begin(log, context, begin, codec, state)
        upto = (await log.head(context)).seq if until is None else await log.last_until(context, until)
        with progress(f"reading {context}", upto - begin.seq) as advance:
            async for page in log.pages(context, begin, upto, codec):
                for record in page.records:
                    state.apply(record)
                if context == "quota":
                    own += page.records
                advance(len(page.records))
    if own:
        return Folded(state, own, settings, is_computed=False)
    from services.quota_ledger.decide.decide_ledger_events import caught_up

    own = caught_up(state, settings, at_us(until) * 1000 if until else time.time_ns())
    return Folded(state, own, settings, is_computed=True)


async def _begin(
    log: LogReader, context: str, begin: Position, codec: Codec, state: LedgerState
) -> list[RecordedEvent]:
    """Begins where retention has cut a context, with what was carried forward; returns the opening balances."""
    if not begin.seq:
        return []
    copies = await log.carried_forward(context, begin.seq, codec)
    for record in copies:
        state.apply(record)
    state.history_begins(context, begin.seq)
    return [record for record in copies if isinstance(record.event, BalancesOpened)]


async def settings_of(log: LogReader, until: datetime | None) -> LedgerSettings:
    """Returns the settings that the ledger recorded last, by then."""
    for found in await newest(log.database, "quota", [ConfigApplied], 1 if until is None else RECORDED_CONFIGS):
        event = found.record.event
        if isinstance(event, ConfigApplied) and (until is None or found.record.at_ns <= at_us(until) * 1000):
            return LedgerSettings.of_text(event.text)
    begin = await log.oldest("quota")
    if begin is not None and begin.seq:
        copies = [record.event for record in await log.carried_forward("quota", begin.seq, Codec([ConfigApplied]))]
        return LedgerSettings.of_text(copies[-1].text if copies and isinstance(copies[-1], ConfigApplied) else "")
    return LedgerSettings()
