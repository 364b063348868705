"""The runner of every service: follow, wait for the lock, lead, drain. What a service decides lives in the service.

A service is a declaration (`Service`) and one coroutine, `lead`, that runs only while this replica is the writer of its
context. An error that cannot be handled ends the process; the supervisor, or Kubernetes, starts it again.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from shared import families, health, logs, tracing
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft, Event, Recorded
from shared.fold import State
from shared.health import Metrics, Status
from shared.log.database import FAILURES, Database
from shared.log.folding import Look
from shared.log.follower import Follower
from shared.log.positions import LogRewound, Position
from shared.log.reader import LogReader
from shared.log.registry import Registry
from shared.log.snapshot import SnapshotFailed, pack_in_child
from shared.log.writer import LogWriter
from shared.rebuild import watch_rebuilds
from shared.retain import Retention, RetentionSettings, watch_retention
from shared.settings import Settings

log = logging.getLogger(__name__)

DRAIN_DEADLINE_S = 10.0
REGISTER_EVERY_S = 10.0
STANDBY_AFTER_S = 0.5
"""A lock that is free is had sooner: whoever still waits then stands by."""

Lead = Callable[["Runtime"], Awaitable[None]]
StandBy = Callable[["Runtime"], Awaitable[None]]
Beside = Callable[["Runtime"], AbstractAsyncContextManager[Any]]
AnswerWith = Callable[["Runtime", bytes], Awaitable[bytes]]


class OnSubject(NamedTuple):
    """An answer to questions on a subject with wildcards: it is told which subject it was."""

    answer: Callable[["Runtime", str, bytes], Awaitable[bytes]]


class Service(NamedTuple):
    """What a service is: the contexts it follows, the one it writes, the questions it answers.

    Attributes:
        follows: context -> event types that its State folds; the own context included.
        emits: every type it may append.
        lead: runs while this replica is the writer; returns when `runtime.draining` is set.
        answers: bus subject -> answer; every replica answers, from followed state.
        restates: type that says what an object is -> type that says it is gone; what is live outlasts its partition.
        beside: runs around all of it, whether this replica leads or not; what it yields is `runtime.beside`.
        hears: bus subjects it subscribes to beside those of the logs it follows; with wildcards.
        says: bus subjects it publishes on beside those of the log it writes; with wildcards.
        asks: subjects of the questions it asks.
        streams: JetStream streams it makes and fills.
        retention: how long what it writes is kept, where that is not the same as for all.
        stand_by: runs while the replica has read everything and waits for the lock, and is cancelled when it gets it: for what `lead`
            would otherwise work out first. It appends nothing.

    `writes` and the contexts of `follows` may be families (`metrics-*`, see shared/families.py); the runner puts their members in
    their place. What a service may do on the bus and in the database is generated from this declaration.
    """

    name: str
    writes: str
    follows: Mapping[str, tuple[type[Event], ...]]
    emits: tuple[type[Event], ...]
    settings: type[Settings]
    new_state: Callable[[], State]
    lead: Lead
    answers: Mapping[str, AnswerWith | OnSubject] = {}
    restates: Mapping[type[Event], type[Event]] = {}
    beside: Beside | None = None
    hears: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    retention: Retention = Retention()
    stand_by: StandBy | None = None

    def member(self, shard: int, shards: int) -> "Service":
        """This service with families replaced by their members; a sharded one as the shard that it is.

        Raises:
            NoSuchShard: there are not so many.
            KoordError: it does not follow what it writes, though a service folds what it said.
        """
        if self.writes not in self.follows:
            raise KoordError(f"service {self.name} writes {self.writes} and does not follow it")
        name, writes = self.name, self.writes
        if families.is_family(writes):
            if not 0 <= shard < shards:
                raise families.NoSuchShard(name, shard, shards)
            name, writes = f"{name}-{shard}", families.member(writes, shard)
        follows = families.expanded({k: v for k, v in self.follows.items() if k != self.writes}, shards)
        follows[writes] = self.follows[self.writes]
        streams = tuple(families.stream_members(self.streams, shards))
        return self._replace(name=name, writes=writes, follows=follows, streams=streams)


class Environment(Settings, frozen=True, kw_only=True):
    """What every service reads: `KOORD_<FIELD>`."""

    postgres: Annotated[
        str,
        Meta(description="the log's database: postgresql://user:password@host:port/name, with ?sslmode and its like"),
    ]
    nats: Annotated[str, Meta(description="the bus; without it the service polls the database")] = (
        "nats://127.0.0.1:4222"
    )
    mqtt: Annotated[
        str, Meta(description="broker that node agents use: mqtt[s]://user:password@host:port; empty: they use the bus")
    ] = ""
    nats_nkey: Annotated[str, Meta(description="file with the NKEY seed that proves the bus login; empty: none")] = ""
    nats_ca: Annotated[
        str, Meta(description="file with the authority of the bus' certificate; empty: the system's")
    ] = ""
    http: Annotated[str, Meta(description="host:port for /healthz, /readyz, /metrics and /statusz; empty: none")] = ""
    log_level: Annotated[str, Meta(description="debug, info, warning or error; JSON lines on stderr")] = "info"
    replica: Annotated[str, Meta(description="this replica's name in the log; empty: host and process id")] = ""
    metrics_shards: families.Shards = 1
    shard: Annotated[int, Meta(ge=0, description="which of them this process writes, if it writes one")] = 0
    otlp: Annotated[str, Meta(description="OTLP endpoint for spans (extra `tracing`); empty: none")] = ""
    snapshot_every_s: Annotated[float, Meta(gt=0, description="seconds between snapshots of the state")] = 60.0
    rebuild_every_s: Annotated[float, Meta(gt=0, description="seconds between rebuilds that check the state")] = 600.0


def release() -> str:
    """The version of this code."""
    try:
        return version("koordstream")
    except PackageNotFoundError:
        return "0+source"


class Runtime:
    """What a service's shell may do: look at the State, append, wait, know the time."""

    def __init__(self, declared: Service, settings: Any, environment: Environment) -> None:
        self.declared = declared
        self.service = service = declared.member(environment.shard, environment.metrics_shards)
        self.settings = settings
        self.environment = environment
        self.retention = RetentionSettings.of(declared.name, declared.retention, os.environ)
        self.draining = asyncio.Event()
        self.metrics = Metrics()
        self.database = Database(environment.postgres, application=f"koord {service.name}")
        self.log = LogReader(self.database)
        self.registry = Registry(self.database, service.name)
        self.bus = Bus(
            environment.nats, name=f"koord {service.name}", nkey=environment.nats_nkey, ca=environment.nats_ca
        )
        self.follower = Follower(
            service.name, self.log, self.bus, service.follows, service.new_state, own=service.writes
        )
        replica = environment.replica or f"{socket.gethostname()}/{os.getpid()}"
        self.writer = LogWriter(self.database, self.bus, service.writes, f"{service.name}@{replica}", self.follower.own)
        self.beside: Any = None
        self.prepared: Any = None  # what `stand_by` has made ready for `lead`
        self.phase = "starting"
        self.counts: dict[str, int] = {}  # what the service itself counts, for `/statusz`
        self.rebuilt = ""
        self.base: datetime | None = None  # the snapshot at which the next rebuild begins
        self._rate = (time.monotonic(), 0, 0.0)

    @property
    def state(self) -> Any:
        """The State, folded; another object after the log was rewound."""
        return self.follower.state

    def now_ns(self) -> int:
        """The wall clock, which a shell hands to its decisions."""
        return time.time_ns()

    async def append(
        self, drafts: Sequence[Draft], *, now_ns: int, seen: Mapping[str, int] | None = None, config: str = ""
    ) -> list[Recorded]:
        """Append in one transaction; on return the events are committed and folded.

        Args:
            seen: the positions that the decision rests on; those of the State at this call when not given.

        Raises:
            LostHead: the process must end.
        """
        basis = dict(self.state.positions) if seen is None else seen
        started = time.monotonic()
        with tracing.span("append", context=self.service.writes, events=len(drafts)):
            records = await self.writer.append(drafts, now_ns=now_ns, seen=basis, config=config)
        self.metrics.append_s.observe(time.monotonic() - started)
        self.metrics.appended.inc(len(records))
        return records

    async def changed(self, timeout_s: float | None = None) -> bool:
        """Wait until the State changed since the last call; False when the time ran out. Returns at once while draining."""
        if self.draining.is_set():
            return False
        return await self.follower.changed(timeout_s)

    def look(self, look: Look | None) -> None:
        """While leading: be called with each record just before it is folded, with the State as it is then; None ends that."""
        self.follower.look(look)

    async def check_held(self) -> None:
        """A round trip on the lock's connection, before effects or answers that rest on no new event."""
        await self.writer.check_held()

    def drain(self) -> None:
        """Ask `lead` to return."""
        self.phase = "draining"
        self.draining.set()
        self.follower.wake()

    def status(self) -> Status:
        """For `/statusz`."""
        at, folded, rate = self._rate
        now = time.monotonic()
        if now - at >= 1:
            rate = (self.follower.folded - folded) / (now - at)
            self._rate = (now, self.follower.folded, rate)
        return Status(
            service=self.service.name,
            state=self.phase,
            epoch=self.writer.epoch,
            lag=self.follower.lag,
            events_per_s=round(rate, 1),
            folded=self.follower.folded,
            positions=dict(self.state.positions),
            bus=self.bus.connected,
            refused=self.bus.refused,
            reloads=self.follower.reloads,
            rebuilt=self.rebuilt,
            counts=dict(self.counts),
        )

    async def snapshot(self) -> None:
        """Store the State at its positions; one whose fold broke off is not stored."""
        if not self.follower.sound:
            return
        positions = dict(self.follower.positions)
        digest, packed = await pack_in_child(self.state)
        await self.registry.write_snapshot(positions, self.state.SCHEMA, release(), packed, digest, self.base)


def run(service: Service) -> int:
    """Run a service until SIGTERM or SIGINT; the process's exit status."""
    environment = Environment.load("", os.environ)
    logs.set_up(service.name, environment.log_level)
    tracing.set_up(service.name, environment.otlp)
    settings = service.settings.load(service.name, os.environ)
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(service, settings, environment))
    except KoordError as error:
        log.error(str(error), extra={"error": type(error).__name__})  # noqa: TRY400  the text says what to do
        return 1
    return 0


async def _serve(service: Service, settings: Settings, environment: Environment) -> None:
    runtime = Runtime(service, settings, environment)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.drain)
    probes = await health.serve(environment.http, runtime.status, runtime.metrics) if environment.http else None
    await runtime.bus.start()
    leading: asyncio.Task[None] | None = None
    around = AsyncExitStack()
    try:
        if service.beside is not None:
            runtime.beside = await around.enter_async_context(service.beside(runtime))
        leading = asyncio.create_task(_follow_and_lead(runtime), name="lead")
        watched: set[asyncio.Future[Any]] = {
            leading,
            runtime.follower.failed,
            runtime.writer.lost,
            asyncio.create_task(runtime.draining.wait()),
        }
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if runtime.draining.is_set() and not leading.done() and runtime.writer.epoch:
            ends = {leading, runtime.writer.lost}
            done, _ = await asyncio.wait(ends, timeout=DRAIN_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            await ended
    finally:
        if leading is not None:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
        await around.aclose()
        await runtime.writer.close()
        await runtime.follower.stop()
        await runtime.bus.close()
        await runtime.database.close()
        if probes is not None:
            await probes.cleanup()


async def _follow_and_lead(runtime: Runtime) -> None:
    service, follower, writer = runtime.service, runtime.follower, runtime.writer
    await runtime.registry.check_readers(service.writes, [kind.type_name() for kind in service.emits])
    runtime.phase = "following"
    await follower.start()
    gc.collect()
    gc.freeze()  # what was loaded stays: collections need not look at it again
    for subject, answer in service.answers.items():
        await runtime.bus.answer_on(subject, _bound(answer, runtime))
    background = [asyncio.create_task(_register(runtime), name="register")]
    try:
        await follower.caught_up(await runtime.log.last_seen(service.writes))
        runtime.phase = "waiting-for-lock"
        head = await _acquired(service, runtime)
        follower.take_over()
        await _stand_at(runtime, head)
        await writer.begin(release(), service.emits, now_ns=runtime.now_ns(), seen=dict(runtime.state.positions))
        runtime.base = await runtime.registry.oldest_snapshot(runtime.state.SCHEMA)
        runtime.phase = "leading"
        log.info("leading", extra={"context": service.writes, "epoch": writer.epoch, "head": head.seq})
        background.append(asyncio.create_task(_snapshots(runtime), name="snapshots"))
        background.append(asyncio.create_task(watch_rebuilds(runtime), name="rebuilds"))
        background.append(asyncio.create_task(watch_retention(runtime), name="retention"))
        background.append(asyncio.create_task(_led(service, runtime), name="lead"))
        done, _ = await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            await ended
        if runtime.draining.is_set():
            await runtime.snapshot()
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


async def _acquired(service: Service, runtime: Runtime) -> Position:
    """Wait for the lock; what the service does meanwhile ends with that, and an error in it ends the process."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(runtime.writer.acquire())]
    locked = tasks[0]
    try:
        await asyncio.wait(tasks, timeout=STANDBY_AFTER_S)
        if service.stand_by is not None and not locked.done():
            tasks.append(asyncio.ensure_future(service.stand_by(runtime)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if locked not in done:
            for ended in done:
                await ended
        head: Position = await locked
        return head
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _led(service: Service, runtime: Runtime) -> None:
    await service.lead(runtime)


async def _stand_at(runtime: Runtime, head: Position) -> None:
    """Fold the own log to the head under the lock, the others to what the predecessor had seen."""
    position = await runtime.follower.read_to_head(runtime.service.writes)
    if position != head:
        raise LogRewound(runtime.service.writes, position, head.digest)
    await runtime.follower.caught_up(await runtime.log.last_seen(runtime.service.writes))


def _bound(answer: AnswerWith | OnSubject, runtime: Runtime) -> Callable[[str, bytes], Awaitable[bytes]]:
    async def respond(subject: str, data: bytes) -> bytes:
        if isinstance(answer, OnSubject):
            return await answer.answer(runtime, subject, data)
        return await answer(runtime, data)

    return respond


async def _register(runtime: Runtime) -> None:
    while True:
        try:
            await runtime.registry.register(runtime.state.positions, runtime.follower.readable)
        except FAILURES as error:  # the next time will do: a registration lasts for days
            log.warning("cannot register as a follower", extra={"error": repr(error)})
        await asyncio.sleep(REGISTER_EVERY_S)


async def _snapshots(runtime: Runtime) -> None:
    folded = 0
    while True:
        await asyncio.sleep(runtime.environment.snapshot_every_s)
        if runtime.follower.folded == folded:
            continue
        try:
            await runtime.snapshot()
        except (SnapshotFailed, *FAILURES) as error:  # costs the next start a longer tail, no event
            log.warning("cannot write a snapshot", extra={"error": repr(error)})
            continue
        folded = runtime.follower.folded
        gc.collect()  # of what came since the last time: what is frozen with it would never be freed
        gc.freeze()
