"""Two readings made into rows: what a table shows and what `-o json` prints."""

import msgspec

from cli.top.readings import Reading
from shared.runtime.status import Status
from shared.unreachable import Unreachable

Bus = dict[str, str | float | bool | None]
"""What is known of the bus: url, connected, version, round_trip_ms, beacons_per_s, refused."""

SEEN_S = 45.0
"""A follower registers every 10 s."""


class ServiceRow(msgspec.Struct, frozen=True):
    """One process, or one service that is known from the log alone.

    Attributes:
        state: from its status; else `starting`, `leading` (its beacon arrives), `following` (it registered lately) or
            `silent`.
        up_s: since it began; for a service known from the log alone, since it leads.
        cpu_percent: of one core, between the two readings.
        lag: events announced and not folded yet.
        unreachable: servers that it cannot reach.
        halted: work that it does not do until somebody acts: what, why, and what to do.
    """

    service: str
    replica: str
    state: str
    epoch: int | None = None
    up_s: float | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    lag: int | None = None
    events_per_s: float | None = None
    refused: str = ""
    unreachable: tuple[Unreachable, ...] = ()
    halted: tuple[str, ...] = ()


class ContextRow(msgspec.Struct, frozen=True):
    """One context.

    Attributes:
        writer: `service@replica` that started last; `has_beacon`: its beacon arrives (None: not known).
        lag: follower -> events that it has not folded; from its status where that is known, else from its
            registration, which is up to 10 s old.
    """

    context: str
    head: int
    events_per_s: float | None
    writer: str
    has_beacon: bool | None
    lag: dict[str, int]
    oldest: int | None = None
    partitions: int | None = None
    size_bytes: int | None = None


class Summary(msgspec.Struct, frozen=True):
    """The state of the system.

    Attributes:
        now_ns: when the later reading was taken.
        problems: what could not be looked at.
    """

    now_ns: int
    services: list[ServiceRow]
    contexts: list[ContextRow]
    bus: Bus
    problems: list[str]


def summarise(before: Reading | None, now: Reading, bus: Bus) -> Summary:
    """Rows of a reading; rates need the one before."""
    return Summary(now.now_ns, _services(before, now), _contexts(before, now), bus, now.problems)


def _services(before: Reading | None, now: Reading) -> list[ServiceRow]:
    rows = [_process(name, status, before, now) for name, status in now.statuses.items()]
    figures = {row.service for row in rows}
    writers = {seen.writer.service: seen for seen in now.contexts.values() if seen.writer}
    unseen = {one.service: one.unseen_s for one in now.followers}
    for service in sorted({*writers, *unseen} - figures):
        seen = writers.get(service)
        writer = seen.writer if seen else None
        if seen and writer and (seen.has_beacon or (seen.has_beacon is None and unseen.get(service, SEEN_S) < SEEN_S)):
            up_s = (now.now_ns - writer.since_ns) / 1e9
            rows.append(ServiceRow(service, writer.replica, "leading", writer.epoch, round(up_s, 1)))
        else:
            state = "following" if unseen.get(service, SEEN_S) < SEEN_S and not writer else "silent"
            rows.append(ServiceRow(service, writer.replica if writer else "", state, writer.epoch if writer else None))
    return sorted(rows, key=lambda row: (row.service, row.replica))


def _process(name: str, status: Status | None, before: Reading | None, now: Reading) -> ServiceRow:
    if status is None:
        return ServiceRow(name, name, "starting" if name in now.starting else "silent")
    earlier = before.statuses.get(name) if before else None
    cpu = None
    if before and earlier and earlier.up_s <= status.up_s and now.at_s > before.at_s:
        cpu = round(100 * (status.cpu_s - earlier.cpu_s) / (now.at_s - before.at_s), 1)
    return ServiceRow(
        status.service,
        name,
        status.state,
        status.epoch or None,
        status.up_s,
        cpu,
        status.rss_bytes or None,
        status.lag,
        status.events_per_s,
        status.refused,
        status.unreachable,
        status.halted,
    )


def _contexts(before: Reading | None, now: Reading) -> list[ContextRow]:
    rows = []
    for name, seen in now.contexts.items():
        rate = None
        if before and name in before.contexts and now.at_s > before.at_s:
            rate = round((seen.head - before.contexts[name].head) / (now.at_s - before.at_s), 1)
        lag = {one.service: one.events for one in now.followers if one.context == name}
        live = {
            status.service: max(seen.head - status.positions[name], 0)
            for status in now.statuses.values()
            if status and name in status.positions and status.state == "leading"
        }
        writer = f"{seen.writer.service}@{seen.writer.replica}" if seen.writer else ""
        size = seen.size
        rows.append(
            ContextRow(
                name,
                seen.head,
                rate,
                writer,
                seen.has_beacon,
                {**lag, **live},
                size.oldest if size else None,
                size.partitions if size else None,
                size.size_bytes if size else None,
            )
        )
    return rows
