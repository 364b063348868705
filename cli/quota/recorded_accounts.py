"""The ledger's accounts as its log has them, at the head or at an instant: the newest snapshot before it, and the events
after that. No service needs to run.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from cli.quota.rebuild_state import fold_log, settings_of
from cli.recorded_instant import require_past
from cli.recorded_projection import read_into
from cli.terminal.durations import second
from cli.terminal.progress import progress
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import Verification, VerifyReport
from services.quota_ledger.service_manifest import MANIFEST
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED
from services.quota_ledger.state.quota_accounts_state_for_cli import ProjectionState
from shared.errors import KoordError
from shared.events import EVENT_TYPES, Event
from shared.events.cluster import ObjectObserved, PodObserved
from shared.events.log import CarriedForward
from shared.events.quota import BalancesOpened
from shared.kube.elastic_quota import RESOURCES, weighs_its_max
from shared.kube.pod import Pod
from shared.log.admin.session import reading
from shared.log.codec import Codec
from shared.log.position import Position
from shared.log.reader import LogReader, read_record

Observed = TypeVar("Observed", bound=Event)

CONTEXT = MANIFEST.writes

COMPUTED = "No ledger had written to this log by then; these are the numbers it would have recorded."


class Accounts(NamedTuple):
    """The accounts after the last event read.

    Attributes:
        is_computed: no ledger has written; the numbers are those that it would have recorded.
    """

    projection: LedgerProjection
    settings: LedgerSettings
    is_computed: bool


async def accounts(postgres: str, until: datetime | None = None) -> Accounts:
    """Reads the accounts as of the log's head, or of an instant.

    Raises:
        KoordError: the log begins after that instant, or has not reached it.
    """
    async with reading(postgres) as log:
        return await accounts_in(log, until)


async def accounts_in(log: LogReader, until: datetime | None = None) -> Accounts:
    """Does the same from an open log."""
    await require_past(log, until)
    upto = await _upto(log, until)
    if not upto:
        computed = await fold_log(log, until)
        return Accounts(computed.state.projection, computed.settings, is_computed=True)
    settings = await settings_of(log, until)
    state = ProjectionState(settings.new_state().projection)
    await read_into(state, log, MANIFEST.name, {CONTEXT: upto}, FOLDED, title="reading the ledger's log")
    return Accounts(state.projection, settings, is_computed=False)


async def recorded_accounts_in(log: LogReader) -> Accounts | None:
    """Does the same, if a ledger has written: nothing is computed."""
    return await accounts_in(log) if await _upto(log, None) else None


async def verified(postgres: str) -> tuple[VerifyReport, bool]:
    """Reads the ledger's log from its beginning and verifies it; where no ledger has written, what it would record.

    Returns:
        The report, and whether no ledger has written.

    Raises:
        MissingEvents: the log has a hole.
    """
    async with reading(postgres) as log:
        upto = await _upto(log, None)
        if not upto:
            computed = await fold_log(log)
            verification = Verification(computed.settings.new_state().projection)
            for record in computed.own:
                verification.take(record)
            return verification.report(), True
        verification = Verification((await settings_of(log, None)).new_state().projection)
        # Everything, not only what is folded: that no event is missing is part of what is verified.
        codec = Codec(list(EVENT_TYPES.values()))
        begin = await log.oldest(CONTEXT) or Position()
        for record in await log.carried_forward(CONTEXT, begin.seq, codec) if begin.seq else ():
            if isinstance(record.event, BalancesOpened):
                verification.take(record)
        with progress("verifying the ledger's log", upto - begin.seq) as advance:
            async for page in log.pages(CONTEXT, begin, upto, codec):
                for record in page.records:
                    verification.take(record)
                advance(len(page.records))
                if verification.is_over:
                    break
        return verification.report(), False


async def weigh_their_max(
    postgres: str, projection: LedgerProjection, names: Iterable[str], until: datetime | None
) -> frozenset[str]:
    """Returns those of the named quotas whose objects have no weight of their own, at the head or at an instant."""
    quotas = [projection.lookup.quotas[name] for name in names if name in projection.lookup.quotas]
    async with reading(postgres) as log:
        upto = await log.last_until("cluster", until) if until is not None else None
        objects = {quota.name: await _object_of(log, f"{quota.namespace}/{quota.name}", upto) for quota in quotas}
    return frozenset(name for name, raw in objects.items() if raw is not None and weighs_its_max(raw))


async def observed_pod(log: LogReader, name: str, until: datetime | None) -> Pod | None:
    """Returns the newest object of a pod, `namespace/name`, at the head or at an instant; None where the log has none."""
    upto = await log.last_until("cluster", until) if until is not None else None
    async for event in _newest_first(log, PodObserved, name, upto):
        return event.object
    return None


async def _object_of(log: LogReader, key: str, upto: int | None) -> Mapping[str, Any] | None:
    """Returns the newest object of a quota."""
    async for event in _newest_first(log, ObjectObserved, key, upto):
        if event.resource in RESOURCES:
            return event.object
    return None


async def _newest_first(log: LogReader, kind: type[Observed], key: str, upto: int | None) -> AsyncIterator[Observed]:
    """Yields the observations of one key, then those that were carried forward."""
    codec = Codec([kind])
    for recorded_as in (kind, CarriedForward):
        rows = [row async for row in log.rows(context="cluster", kind=recorded_as.__name__, key=key, upto=upto)]
        for row in reversed(rows):
            record = read_record(row, codec)
            if record is not None and isinstance(record.event, kind):
                yield record.event


async def _upto(log: LogReader, until: datetime | None) -> int:
    """Returns the last seq of the ledger's log at the instant; 0 when no ledger had written by then."""
    if CONTEXT not in await log.contexts():
        return 0
    head = (await log.head(CONTEXT)).seq
    if until is None:
        return head
    upto = await log.last_until(CONTEXT, until)
    if upto < (first := await _first(log)):
        raise KoordError(
            f"the log of {CONTEXT} begins at {CONTEXT}/{first + 1}, later than {second(until)}; give a later --at"
        )
    return upto


async def _first(log: LogReader) -> int:
    """Returns the seq before the oldest kept event of the ledger's log."""
    begin = await log.oldest(CONTEXT)
    return begin.seq if begin is not None else 0
