"""Rebuilds the ledger's State from the log, at its head or at an instant; no service needs to run."""

import time
from datetime import datetime
from typing import NamedTuple

import msgspec

from services.quota_ledger.decide.next_events import caught_up
from services.quota_ledger.manifest import MANIFEST
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED, LedgerState
from shared.events import EVENT_TYPES, RecordedEvent
from shared.events.cluster import ObjectObserved
from shared.events.log import ConfigApplied
from shared.events.quota import BalancesOpened
from shared.kube.elastic_quota import RESOURCES, weighs_its_max
from shared.log.admin.session import reading
from shared.log.codec import Codec
from shared.log.database import DatabaseDenied
from shared.log.projection import Projection
from shared.log.reader import LogReader, recorded
from shared.log.service_store import ServiceStore


class Folded(NamedTuple):
    """The State after the last event read.

    Attributes:
        settings: of the ledger.
        weigh_their_max: quotas whose objects have no weight of their own.
        own: the events of the `quota` context; computed where the log has none.
        is_computed: no ledger has written; the numbers are those that it would have recorded.
    """

    state: LedgerState
    own: list[RecordedEvent]
    settings: LedgerSettings
    is_computed: bool
    weigh_their_max: frozenset[str]


async def fold(postgres: str, until: datetime | None = None) -> Folded:
    """Reads and folds the contexts that the ledger follows."""
    async with reading(postgres) as log:
        return await fold_log(log, until)


async def newest(postgres: str) -> Folded:
    """Reads the State at the log's head from the ledger's newest snapshot and what came after it; without a snapshot
    from the beginning. The ledger's own events and the quotas without a weight are not collected.
    """
    async with reading(postgres) as log:
        store = ServiceStore(log.database, MANIFEST.name)
        try:
            snapshot = await store.newest_snapshot(LedgerState.SCHEMA, log)
            skips = await store.skips()
        except DatabaseDenied:  # an auditor may read the log alone
            snapshot = None
        if snapshot is None:
            return await fold_log(log)
        settings = LedgerSettings.of_text(await _config(log, None))
        codecs = {context: Codec(kinds) for context, kinds in FOLDED.items()}
        projection = Projection(log, codecs, settings.new_state(), skips)
        projection.start_from(snapshot)
        for context in codecs:
            await projection.read_to(context, (await log.head(context)).seq)
        assert isinstance(projection.state, LedgerState), "made by the ledger's settings"
        return Folded(projection.state, [], settings, is_computed=False, weigh_their_max=frozenset())


async def fold_log(log: LogReader, until: datetime | None = None) -> Folded:
    """Does the same from an open log."""
    there = set(await log.contexts())
    settings = LedgerSettings.of_text(await _config(log, until) if "quota" in there else "")
    state, own = settings.new_state(), []
    unweighted: dict[str, bool] = {}
    for context in ("cluster", "scheduling", "quota"):
        # Of the ledger's own log everything: that none is missing is part of what `verify` checks.
        codec = Codec(list(EVENT_TYPES.values() if context == "quota" else FOLDED[context]))
        if context not in there:
            continue
        own += await _begin(log, context, codec, state)
        async for row in log.rows(context=context):
            if until is not None and row.at > until:
                break
            if (event := codec.one(row.type, row.data)) is not None:
                record = recorded(row, event)
                state.apply(record)
                if context == "quota":
                    own.append(record)
                elif isinstance(event, ObjectObserved) and event.resource in RESOURCES:
                    unweighted[event.object["metadata"]["name"]] = weighs_its_max(event.object)
    weigh_their_max = frozenset(name for name, is_so in unweighted.items() if is_so)
    if own:
        return Folded(state, own, settings, is_computed=False, weigh_their_max=weigh_their_max)
    now_ns = int(until.timestamp() * 1e9) if until else time.time_ns()
    own = caught_up(state, settings, now_ns)
    return Folded(state, own, settings, is_computed=True, weigh_their_max=weigh_their_max)


async def _begin(log: LogReader, context: str, codec: Codec, state: LedgerState) -> list[RecordedEvent]:
    """Begins where retention has cut a context, with what was carried forward; returns the opening balances."""
    begin = await log.oldest(context)
    if begin is None or not begin.seq:
        return []
    copies = await log.carried_forward(context, begin.seq, codec)
    for record in copies:
        state.apply(record)
    state.history_begins(context, begin.seq)
    return [record for record in copies if isinstance(record.event, BalancesOpened)]


async def _config(log: LogReader, until: datetime | None) -> str:
    """Returns the settings that the ledger recorded last."""
    text = ""
    async for row in log.rows(context="quota", kind="ConfigApplied.v1"):
        if until is None or row.at <= until:
            text = msgspec.json.decode(row.data, type=ConfigApplied).text
    if not text and (begin := await log.oldest("quota")) is not None and begin.seq:
        for record in await log.carried_forward("quota", begin.seq, Codec([ConfigApplied])):
            assert isinstance(record.event, ConfigApplied)
            text = record.event.text
    return text
