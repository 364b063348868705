"""`koord bench log`: what the log costs, from a writer's append to a follower's State in another process.

An event counts as appended when the State of the scheduler, in a process of its own, has applied it, and the digest of
that State equals the one of a fold from Postgres. Schema, indexes and fsync are those of production.
"""

import asyncio
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from hashlib import sha256
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop

from cli.bench.synthetic_history import history
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.service_list import contexts
from cli.terminal.output import show_table
from services.scheduler.service import SERVICE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.bus import Bus
from shared.events import RecordedEvent
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.migration import migrate
from shared.log.position import Position
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.log.snapshot import pack_in_child
from shared.log.writer import LogWriter
from shared.runtime.garbage_collection import uncollected

FOLLOWS = SERVICE.member(0, 1).follows
SNAPSHOT_INTERVAL_S = 10.0
MILLION = 1_000_000


class LogFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        append_per_s: events applied by the follower, from the first append on.
        fold_per_s: events folded from seq 1 without a snapshot, straight after.
        lag_p50_ms, lag_p99_ms: from a commit to its being applied, while appends come at a steady rate and snapshots
            and rebuilds are taken.
        event_bytes: mean size of an event's data.
        batch: events of one append in the first part.
        digest_equal: the follower's State and the fold's have one digest.
    """

    append_per_s: float
    fold_per_s: float
    lag_p50_ms: float
    lag_p99_ms: float
    event_bytes: float
    batch: int
    events: int
    digest_equal: bool
    lag_appends_per_s: int
    lag_seconds: float
    load_1m: float


class Servers(msgspec.Struct, frozen=True):
    """Where a child finds the servers."""

    postgres: str
    nats: str


@click.command()
@click.option("--events", type=click.IntRange(min=1_000), default=300_000, show_default=True, help="Events to append.")
@click.option("--batch", type=click.IntRange(min=1), default=500, show_default=True, help="Events of one append.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="How long the lag is measured.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Appends a second then, of 5 events each.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def log(*, events: int, batch: int, seconds: float, rate: int, as_json: bool) -> None:
    """Measure the log: append, fold, and the lag of a follower.

    The writer, the follower, Postgres and NATS are processes of their own on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        figures = uvloop.run(_measure(folder, events, batch, seconds, rate))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, events: int, batch: int, seconds: float, rate: int) -> LogFigures:
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        servers = Servers(postgres.url, nats.url)
        database = Database(servers.postgres)
        await migrate(database, contexts())
        await database.close()

        note(f"appending {events:,} events in batches of {batch}")
        follower, writer = child(_follow, servers, events), child(append, servers, events, batch)
        await next_message(follower), await next_message(writer)  # both are ready
        writer[1].send("go")
        started_ns, event_bytes = await next_message(writer)
        ended_ns, followed = await next_message(follower)
        note("folding them from the first on")
        folding = child(_fold, servers)
        fold_s, folded = await next_message(folding)

        note(f"appending 5 events {rate} times a second for {seconds:g} s")
        late, steady = child(_follow_slowly, servers, seconds), child(append_slowly, servers, events, seconds, rate)
        await next_message(late), await next_message(steady)
        steady[1].send("go")
        committed = await next_message(steady)
        late[1].send(max(committed))
        applied = await next_message(late)
    lags = sorted((applied[bisect_left(applied, (seq, 0))][1] - at) / MILLION for seq, at in committed.items())
    return LogFigures(
        append_per_s=round(events / ((ended_ns - started_ns) / 1e9)),
        fold_per_s=round(events / fold_s),
        lag_p50_ms=round(lags[len(lags) // 2], 2),
        lag_p99_ms=round(lags[int(len(lags) * 0.99)], 2),
        event_bytes=event_bytes,
        batch=batch,
        events=events,
        digest_equal=followed == folded,
        lag_appends_per_s=rate,
        lag_seconds=seconds,
        load_1m=load_1m,
    )


# Each part below runs in a process of its own, started anew, and talks to the command through a pipe.

Child = tuple[SpawnProcess, Connection]


def child(work: Callable[..., Coroutine[Any, Any, None]], servers: Servers, *arguments: Any) -> Child:
    """Starts a part in a process of its own; it gets its end of the pipe, the servers, and the arguments."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(work, theirs, servers, *arguments), daemon=True)
    process.start()
    return process, ours


def _run(work: Callable[..., Coroutine[Any, Any, None]], pipe: Connection, *arguments: Any) -> None:
    uvloop.run(work(pipe, *arguments))


async def next_message(one: Child) -> Any:
    """Returns the next message of a part."""
    return await asyncio.to_thread(one[1].recv)


async def _writer(servers: Servers, committed: Callable[[list[RecordedEvent], Position, int], None]) -> LogWriter:
    bus = Bus(servers.nats, name="bench writer")
    await bus.start()
    writer = LogWriter(Database(servers.postgres), bus, "cluster", "bench", committed)
    await writer.acquire()
    await writer.begin("bench", (), now_ns=time.time_ns(), seen={})
    return writer


async def append(pipe: Connection, servers: Servers, events: int, batch: int) -> None:
    """Part: appends a history to `cluster` on a signal; sends the start (monotonic) and the mean size of an event."""
    drafts = list(history(0, events))
    encode = msgspec.json.Encoder().encode
    event_bytes = sum(len(encode(draft.event)) for draft in drafts[:2_000]) / min(events, 2_000)
    writer = await _writer(servers, lambda *_: None)
    gc.freeze()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    started = time.monotonic_ns()
    under_way: asyncio.Task[list[RecordedEvent]] | None = None
    for start in range(0, events, batch):  # two at a time: the rows of one are made while Postgres writes the other
        following = asyncio.create_task(writer.append(drafts[start : start + batch], now_ns=time.time_ns()))
        if under_way is not None:
            await under_way
        under_way = following
    if under_way is not None:
        await under_way
    pipe.send((started, event_bytes))
    await writer.close()


async def _follow(pipe: Connection, servers: Servers, events: int) -> None:
    bus = Bus(servers.nats, name="bench follower")
    await bus.start()
    follower = Follower("bench", LogReader(Database(servers.postgres)), bus, FOLLOWS, SchedulerState)
    await follower.start()
    gc.collect()
    gc.freeze()
    pipe.send("ready")
    while follower.positions["cluster"].seq < events + 1:  # WriterStarted is the first
        await follower.changed()
    ended = time.monotonic_ns()
    pipe.send((ended, sha256(follower.state.encode()).digest()))
    await follower.stop()
    await bus.close()


async def _fold(pipe: Connection, servers: Servers) -> None:
    reader = LogReader(Database(servers.postgres))
    await reader.contexts()  # connected
    gc.freeze()
    follower = Follower("bench", reader, None, FOLLOWS, SchedulerState)
    started = time.monotonic()
    with uncollected():  # as the runner starts a follower
        await follower.start()
    pipe.send((time.monotonic() - started, sha256(follower.state.encode()).digest()))
    await follower.stop()


async def append_slowly(pipe: Connection, servers: Servers, first: int, seconds: float, rate: int) -> None:
    """Part: appends 5 events at a time at a steady rate on a signal; sends seq -> instant of the commit (monotonic)."""
    commits: dict[int, int] = {}

    def committed(_records: list[RecordedEvent], head: Position, _epoch: int) -> None:
        commits[head.seq] = time.monotonic_ns()

    drafts = list(history(first, int(seconds * rate) * 5))
    writer = await _writer(servers, committed)
    gc.freeze()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    commits.clear()
    started = time.monotonic()
    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        await writer.append(drafts[number * 5 : number * 5 + 5], now_ns=time.time_ns())
    pipe.send(commits)
    await writer.close()


async def _follow_slowly(pipe: Connection, servers: Servers, seconds: float) -> None:
    """Follows as the scheduler's runner does: with snapshots by a forked child and rebuilds by a process."""
    bus = Bus(servers.nats, name="bench follower")
    await bus.start()
    database = Database(servers.postgres)
    follower = Follower("scheduler", LogReader(database), bus, FOLLOWS, SchedulerState)
    await follower.start()
    gc.collect()
    gc.freeze()
    pipe.send("ready")
    snapshots = asyncio.create_task(_snapshots(follower, database, servers, seconds))
    last = asyncio.create_task(asyncio.to_thread(pipe.recv))
    applied: list[tuple[int, int]] = []
    while not last.done() or follower.positions["cluster"].seq < last.result():
        await follower.changed(0.2)  # as a service's lead waits
        applied.append((follower.positions["cluster"].seq, time.monotonic_ns()))
    await snapshots
    pipe.send(applied)
    await follower.stop()
    await bus.close()


async def _snapshots(follower: Follower, database: Database, servers: Servers, seconds: float) -> None:
    registry = ServiceStore(database, "scheduler")
    interval_s = min(SNAPSHOT_INTERVAL_S, seconds / 3)
    for number in range(int(seconds / interval_s)):
        await asyncio.sleep(interval_s)
        positions = dict(follower.positions)
        digest, packed = await pack_in_child(follower.state)
        await registry.write_snapshot(positions, SchedulerState.SCHEMA, "bench", packed, digest)
        if number % 2 == 1:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "shared.runtime.rebuild", "services.scheduler.service:SERVICE",
                env={**os.environ, "KOORD_POSTGRES": servers.postgres}, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            output, _ = await child.communicate()
            assert msgspec.json.decode(output)["equal"], output


def note(text: str) -> None:
    """Prints the step that is under way."""
    click.echo(text, err=True)
