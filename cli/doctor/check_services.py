"""Checks of the services: every context has its writer, and every follower keeps up."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cli.doctor.finding import Finding
from cli.doctor.one_outage import API_SERVER, POSTGRES, OutageFinding
from cli.terminal.durations import age
from shared.events.log import WriterStarted
from shared.kube.instants import SECOND, instant_text
from shared.log.admin.followers import Parked
from shared.log.admin.lag import Behind
from shared.log.admin.newest_events import Found
from shared.log.admin.server_check import ContextSize
from shared.log.unusable_database import OF_A_HANG
from shared.runtime.status import DISK_LOW, DISK_VERY_LOW, Status
from shared.unreachable import Unreachable

NEEDED = frozenset({"cluster", "scheduling"})
"""Without a writer of these no pod is placed; other contexts are written where their service is part of the
installation.
"""

_COMPILES = (
    "; where it starts now, wait: its first start after an installation or an upgrade compiles for a minute or more"
)
UNSEEN_S = 45.0
"""A follower registers every 10 s."""
LAG_S = 45.0
"""Registered positions are up to 10 s old by themselves."""


class ReceivedBeacon(NamedTuple):
    """A beacon that was received from a context's writer."""

    epoch: int
    seq: int


def about_writers(
    writers: Mapping[str, Found | None],
    beacons: Mapping[str, Sequence[ReceivedBeacon]] | None,
    statuses: Mapping[str, Status | None] | None = None,
) -> Iterator[Finding]:
    """Checks the leader of each context.

    Args:
        writers: context -> its newest WriterStarted.
        beacons: context -> received beacons; None without a subscription.
        statuses: name of a process -> its status; None without a response. Those of unknown addresses are absent.
    """
    unconfirmed: list[str] = []
    for context, found in writers.items():
        if found is None:
            if context in NEEDED:
                wait = _COMPILES if context == "scheduling" else ""
                what = f"{context} was never written: its service has not run yet"
                yield Finding(
                    "error", "services", what, f"start the services: `koord up`, or `docker compose up`{wait}"
                )
            continue
        assert isinstance(found.record.event, WriterStarted)
        started = found.record.event
        who = f"{context} is led by {found.actor}, epoch {started.epoch}, release {started.release}"
        if beacons is None:
            unconfirmed.append(who)
            continue
        epochs = {beacon.epoch for beacon in beacons.get(context, ())}
        if started.epoch in epochs:
            yield Finding("ok", "services", who)
        elif epochs:
            yield Finding(
                "warning",
                "services",
                f"{context}: a writer of epoch {max(epochs)} sends beacons, and the log's newest is {started.epoch} ({found.actor})",
                "a take-over is under way; if this stays, two installations share this bus: give each its own",
            )
        else:
            what = f"{context} has no writer: {found.actor} led it last and sends no beacons"
            remedy = f"start it again, and see why it ended in its log: `koord run {service_of(found.actor)}`"
            if (statuses or {}).get(replica := found.actor.partition("@")[2], ...) is None:
                what += f", and process {replica} does not respond"
                remedy = (
                    "`koord up` starts a service that has ended again by itself; one that hangs is `silent` in what it prints, "
                    "and is to be ended: `kill -9` and the process id there"
                )
            remedy += _COMPILES if context == "scheduling" else ""
            yield Finding("error", "services", what, remedy)
        if len(epochs) > 1:
            what = f"{context}: beacons of {len(epochs)} epochs arrive at once"
            yield Finding("note", "services", what, "a take-over was just under way; look again")
    if unconfirmed:
        yield Finding(
            "note", "services", f"as the log says, {'; '.join(unconfirmed)}; the bus could not be reached", ""
        )


def announcing(
    writers: Mapping[str, Found | None], statuses: Mapping[str, Status | None]
) -> dict[str, list[ReceivedBeacon]]:
    """Returns the beacons that leaders send by their own account: a status that leads with the epoch of the log, and is
    connected to the bus, which refuses it nothing.

    Args:
        writers: context -> its newest WriterStarted.
        statuses: name of a process -> its status; None without a response.
    """
    leading = {
        (status.service, status.epoch)
        for status in statuses.values()
        if status and status.state == "leading" and status.bus and not status.refused and not status.unreachable
    }
    return {
        context: [ReceivedBeacon(found.record.event.epoch, found.record.seq)]
        for context, found in writers.items()
        if found
        and isinstance(found.record.event, WriterStarted)
        and (found.actor.partition("@")[0], found.record.event.epoch) in leading
    }


def about_unreachable(statuses: Mapping[str, Status | None]) -> Iterator[Finding]:
    """Names the servers that services cannot reach, by the services' own account.

    Args:
        statuses: name of a process -> its status; None without a response.
    """
    by_server: dict[str, list[tuple[str, Unreachable]]] = {}
    for name, status in statuses.items():
        for away in status.unreachable if status else ():
            by_server.setdefault(away.server, []).append((name, away))
    for found in by_server.values():
        _, first = min(found, key=lambda each: each[1].since_ns)
        names = ", ".join(name for name, _ in found)
        if POSTGRES in first.server:
            what, follows = (
                f"{names} {first}",
                f"since {instant_text(first.since_ns // SECOND * SECOND)} {names} wait{'s' if len(found) == 1 else ''} for it",
            )
            yield OutageFinding("error", "services", what, OF_A_HANG, server=POSTGRES, follows=follows)
            continue
        remedy = "see that it runs, and what lies between: contact is tried again and again, without a restart"
        server = API_SERVER if API_SERVER in first.server else first.server
        yield OutageFinding("error", "services", f"{names} {first}", remedy, server=server)


def about_followers(found: Sequence[Behind]) -> Iterator[Finding]:
    """Checks the lag of the followers."""
    well: dict[str, int] = {}
    for one in found:
        if one.unseen_s > UNSEEN_S:
            if one.service not in well:
                yield Finding(
                    "warning",
                    "followers",
                    f"{one.service} was last seen {age(one.unseen_s)} ago",
                    f"start it again; if it is gone for good: `koord followers forget {one.service}`",
                )
            well[one.service] = -1
        elif one.oldest_s > LAG_S:
            yield Finding(
                "error",
                "followers",
                f"{one.service} is {one.events:,} events of {one.context} behind; the oldest of them is {age(one.oldest_s)} old",
                "see its log and its share of a core (`koord top`); one that stands still has parked an event or waits for Postgres",
            )
            well[one.service] = -1
        else:
            well.setdefault(one.service, 0)
    if keeping_up := [service for service, state in well.items() if state == 0]:
        yield Finding("ok", "followers", f"{', '.join(keeping_up)} keep{'s' if len(keeping_up) == 1 else ''} up")


def about_parked(found: Sequence[Parked]) -> Iterator[Finding]:
    """Reports the events that stopped a service."""
    for one in found:
        yield Finding(
            "error",
            "followers",
            f"{one.service} stands still at {one.context}/{one.seq}: {one.error}",
            f"run a release that can read it, or pass over it: `koord events skip {one.service} {one.context}/{one.seq} --reason ...`",
        )


def about_partitions(sizes: Sequence[ContextSize]) -> Iterator[Finding]:
    """Checks that there is a partition for the next events."""
    for one in sizes:
        if one.room < 1:
            yield Finding(
                "error",
                "disk",
                f"{one.context} has no partition for seq {one.head + 1}: its writer cannot append",
                f"select koord_extend('{one.context}', {one.head + 1}); as its writer's role, and see why the writer has not",
            )
    total = sum(one.size_bytes for one in sizes)
    yield Finding(
        "ok",
        "disk",
        f"{len(sizes)} contexts hold {sum(one.head for one in sizes):,} events in {total / 2**20:,.0f} MiB",
    )


def about_disk(free: float, where: str, *, is_wal: bool = False) -> Finding:
    """Checks the free share of a disk that Postgres writes to, as the services do."""
    disk, shorten = ("write-ahead log", "lower max_wal_size") if is_wal else ("log", "shorten KOORD_RETENTION_DAYS")
    what = f"{free:.0%} of the {disk}'s disk is free ({where})"
    if free >= DISK_LOW:
        return Finding("ok", "disk", what)
    remedy = f"make room, or {shorten}: Postgres stops when its disk is full, and every writer with it"
    return Finding("error" if free < DISK_VERY_LOW else "warning", "disk", what, remedy)


def service_of(actor: str) -> str:
    """`metrics-ingest-0@host/12` -> `metrics-ingest`: what `koord run` calls it."""
    name = actor.partition("@")[0]
    stem, _, shard = name.rpartition("-")
    return stem if shard.isdigit() else name
