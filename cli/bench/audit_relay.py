"""`koord bench relay`: the cost of relaying the log to outsiders, from Postgres through JetStream to one subscriber.

First the audit service finds a log that is full and an empty stream, and hands all of it on; then events come at a
steady rate. Service, subscriber, writer and both servers are processes of their own on this machine.
"""

import asyncio
import contextlib
import gc
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import click
import msgspec
import uvloop

from cli.bench.log import MILLION, Servers, append, append_slowly, child, next_message, note
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process
from cli.service_list import contexts
from cli.terminal.output import show_table
from services.audit.checkpoint_signing import generate
from services.audit.cloudevent import decode_identity
from services.audit.service_manifest import stream_of
from shared.bus import Bus
from shared.bus.jetstream import StreamRefused, Streams, StreamsUnreachable
from shared.bus.stream_reader import messages
from shared.errors import KoordError
from shared.log.database import Database
from shared.log.migration import migrate

CONTEXT = "cluster"


class RelayFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        relay_per_s: CloudEvents a second, from when the service has made the stream to the subscriber's last, of a log
            that was there before.
        lag_p50_ms, lag_p99_ms: from a commit to the subscriber, while appends of 5 events come at a steady rate.
        event_bytes: mean size of an event's data; message_bytes: of a CloudEvent.
    """

    relay_per_s: float
    lag_p50_ms: float
    lag_p99_ms: float
    event_bytes: float
    message_bytes: float
    events: int
    lag_appends_per_s: int
    lag_seconds: float
    load_1m: float


@click.command()
@click.option("--events", type=click.IntRange(min=1_000), default=200_000, show_default=True, help="Events to relay.")
@click.option("--seconds", type=float, default=30.0, show_default=True, help="How long the lag is measured.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Appends a second then, of 5 events each.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def relay(*, events: int, seconds: float, rate: int, as_json: bool) -> None:
    """Measure the event stream: from the log to JetStream to one subscriber."""
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        figures = uvloop.run(_measure(folder, events, seconds, rate))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, events: int, seconds: float, rate: int) -> RelayFigures:
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        servers = Servers(postgres.url, nats.url)
        database = Database(servers.postgres)
        await migrate(database, contexts())
        await database.close()
        note(f"appending {events:,} events")
        writer = child(append, servers, events, 500)
        await next_message(writer)
        writer[1].send("go")
        _, event_bytes = await next_message(writer)
        with _audit(folder, servers) as service:
            note("relaying them")
            subscriber = child(_subscribe, servers)
            service.start()
            upto = events + 1  # the first is WriterStarted, and so is the first of the steady writer
            subscriber[1].send((upto, upto + 1 + int(seconds * rate) * 5))
            began_ns, last_ns, size = await next_message(subscriber)
            note(f"appending 5 events {rate} times a second for {seconds:g} s")
            steady = child(append_slowly, servers, events, seconds, rate)
            await next_message(steady)
            steady[1].send("go")
            committed = await next_message(steady)
            received = await next_message(subscriber)
    seqs = [seq for seq, _ in received]
    lags = sorted((received[bisect_left(seqs, seq)][1] - at) / MILLION for seq, at in committed.items())
    return RelayFigures(
        relay_per_s=round((events + 1) / ((last_ns - began_ns) / 1e9)),
        lag_p50_ms=round(lags[len(lags) // 2], 2),
        lag_p99_ms=round(lags[int(len(lags) * 0.99)], 2),
        event_bytes=event_bytes,
        message_bytes=round(size / (events + 1), 1),
        events=events,
        lag_appends_per_s=rate,
        lag_seconds=seconds,
        load_1m=load_1m,
    )


@contextlib.contextmanager
def _audit(folder: Path, servers: Servers) -> Iterator[Process]:
    key = folder / "audit.key"
    generate(key)
    env = {
        **os.environ,
        "KOORD_POSTGRES": servers.postgres,
        "KOORD_NATS": servers.nats,
        "KOORD_AUDIT_KEY": str(key),
        "KOORD_AUDIT_STREAM_MIB": "2048",
    }
    process = Process("audit", [sys.executable, "-m", "cli", "run", "audit"], folder / "audit.log", env=env)
    try:
        yield process
    finally:
        process.stop()


async def _subscribe(pipe: Connection, servers: Servers) -> None:
    """Part: takes every message of the stream by one consumer; sends when the stream began and the last came, then when
    each came.

    Raises:
        KoordError: an event is missing or comes twice: what was measured is worth nothing.
    """
    bus = Bus(servers.nats, name="bench subscriber")
    await bus.start()
    streams, stream = Streams(bus), stream_of(CONTEXT)
    upto, end = await asyncio.to_thread(pipe.recv)
    while True:
        with contextlib.suppress(StreamRefused, StreamsUnreachable):
            if await streams.state(stream) is not None:
                break
        await asyncio.sleep(0.01)
    began_ns = time.monotonic_ns()
    gc.freeze()
    size, last = 0, 0
    times: list[tuple[int, int]] = []
    async for message in messages(bus, stream):
        seq = decode_identity(message).seq
        if seq != last + 1:
            raise KoordError(f"event {seq} came after {last}")
        last, size = seq, size + len(message)
        if seq == upto:
            pipe.send((began_ns, time.monotonic_ns(), size))
        elif seq > upto:
            times.append((seq, time.monotonic_ns()))
            if seq == end:
                break
    pipe.send(times)
    await bus.close()
