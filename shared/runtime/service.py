"""The declaration of a service, for the runner (`runner.py`): its manifest, its State, and one coroutine, `lead`.
Decisions are in the service itself.

`lead` runs only while this replica is the writer of its context, and works with a `Runtime`.
"""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from shared.errors import KoordError
from shared.events import Draft, Event, RecordedEvent
from shared.fold import State
from shared.log.follower import Follower
from shared.log.projection import BeforeFold
from shared.log.retention_carry_forward import CarryForward
from shared.log.snapshot import pack_in_child
from shared.log.writer import LogWriter
from shared.rejected_messages import RejectionRecord
from shared.runtime import sharding, tracing
from shared.runtime.adapters import PRODUCTION, Adapters
from shared.runtime.database_contact import DatabaseContact
from shared.runtime.health import Metrics
from shared.runtime.manifest import Manifest
from shared.runtime.retention_settings import Retention, RetentionSettings
from shared.runtime.status import Status
from shared.settings import Settings
from shared.unreachable import Unreachable

Lead = Callable[["Runtime"], Awaitable[None]]
StandBy = Callable[["Runtime"], Awaitable[None]]
Lifespan = Callable[["Runtime"], AbstractAsyncContextManager[Any]]
Responder = Callable[["Runtime", bytes], Awaitable[bytes]]


class SubjectResponder(NamedTuple):
    """A responder to requests on a subject with wildcards; it gets the subject of each request."""

    respond: Callable[["Runtime", str, bytes], Awaitable[bytes]]


class Service(NamedTuple):
    """Declaration of a service.

    Attributes:
        manifest: its contexts and bus subjects.
        follows: context in the manifest -> event types that its State folds.
        emits: every type it may append.
        lead: runs while this replica is the writer; returns when `runtime.draining` is set.
        serves: bus subject in the manifest -> responder; every replica responds, from followed state.
        carry_forward: which of its events outlast their partition; without it no partition is ever dropped.
        lifespan: context manager around all of it, whether this replica leads or not; it yields `runtime.resources`.
        retention: how long its events are kept, where that differs from the default.
        stand_by: runs while the replica has read everything and waits for the lock, and is cancelled when it gets it:
            for work that `lead` would otherwise begin with. It appends nothing.
    """

    manifest: Manifest
    follows: Mapping[str, tuple[type[Event], ...]]
    emits: tuple[type[Event], ...]
    settings: type[Settings]
    new_state: Callable[[], State]
    lead: Lead
    serves: Mapping[str, Responder | SubjectResponder] = {}
    carry_forward: CarryForward | None = None
    lifespan: Lifespan | None = None
    retention: Retention = Retention()
    stand_by: StandBy | None = None

    @property
    def name(self) -> str:
        """Name of the service, or of the shard."""
        return self.manifest.name

    @property
    def writes(self) -> str:
        """The context to which it appends."""
        return self.manifest.writes

    def member(self, shard: int, shards: int) -> "Service":
        """Returns this service with sharded names replaced by their members; a sharded service becomes the given shard.

        Raises:
            NoSuchShard: there are not so many.
            KoordError: it follows or serves other names than its manifest.
        """
        if set(self.follows) != set(self.manifest.follows) or set(self.serves) != set(self.manifest.serves):
            raise KoordError(f"service {self.name} follows or serves other names than its manifest")
        own = self.manifest.member(shard, shards)
        follows = sharding.expanded({k: v for k, v in self.follows.items() if k != self.writes}, shards)
        return self._replace(manifest=own, follows={**follows, own.writes: self.follows[self.writes]})


class Environment(Settings, frozen=True, kw_only=True):
    """Settings that every service reads: `KOORD_<FIELD>`."""

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
    http_addr: Annotated[
        str, Meta(description="host:port for /healthz, /readyz, /metrics and /statusz; empty: none")
    ] = ""
    log_level: Annotated[str, Meta(description="debug, info, warning or error; JSON lines on stderr")] = "info"
    replica: Annotated[str, Meta(description="this replica's name in the log; empty: host and process id")] = ""
    metrics_shards: sharding.Shards = 1
    shard: Annotated[int, Meta(ge=0, description="the shard that this process writes, if its service is sharded")] = 0
    otlp_endpoint: Annotated[str, Meta(description="OTLP endpoint for spans (extra `tracing`); empty: none")] = ""
    disk_path: Annotated[str, Meta(description="a folder on the disk of the log's database, to watch its space")] = ""
    disk_gb: Annotated[
        float, Meta(ge=0, description="GB of that disk, where no such folder is visible; 0: unknown")
    ] = 0
    wal_disk_path: Annotated[
        str, Meta(description="a folder on the disk of the database's write-ahead log, where that is another one")
    ] = ""
    snapshot_interval_s: Annotated[float, Meta(gt=0, description="seconds between snapshots of the state")] = 60.0
    rebuild_interval_s: Annotated[float, Meta(gt=0, description="seconds between rebuilds that check the state")] = (
        600.0
    )


@cache
def release() -> str:
    """Returns the version of this code."""
    try:
        return version("koordstream")
    except PackageNotFoundError:
        return "0+source"


@cache
def libraries() -> Mapping[str, str]:
    """Returns the versions of the libraries that decisions are computed with: another one may round differently."""
    return {name: version(name) for name in ("numba", "numpy")}


class Runtime:
    """Interface of the runner for `lead`: the State, appends, waiting, and the clock."""

    def __init__(
        self, declared: Service, settings: Any, environment: Environment, adapters: Adapters = PRODUCTION
    ) -> None:
        self.manifest = declared
        self.service = service = declared.member(environment.shard, environment.metrics_shards)
        self.settings = settings
        self.environment = environment
        self.retention = RetentionSettings.of(declared.name, declared.retention, os.environ)
        self.draining = asyncio.Event()
        self.metrics = Metrics()
        self.database = adapters.database(environment.postgres, application=f"koord {service.name}")
        self.database_contact = DatabaseContact(environment.postgres)
        self.log = adapters.reader(self.database)
        self.store = adapters.store(self.database, service.name)
        self.bus = adapters.bus(
            environment.nats, name=f"koord {service.name}", nkey=environment.nats_nkey, ca=environment.nats_ca
        )
        self.follower = Follower(
            service.name, self.log, self.bus, service.follows, service.new_state, own=service.writes, store=self.store
        )
        self.replica = environment.replica or f"{socket.gethostname()}/{os.getpid()}"
        actor = f"{service.name}@{self.replica}"
        self.writer = LogWriter(self.database, self.bus, service.writes, actor, self.follower.own)
        self.resources: Any = None
        self.prepared: Any = None  # the result of `stand_by`, for `lead`
        self.phase = "starting"
        self.counts: dict[str, int] = {}  # counters of the service itself, for `/statusz`
        self.unreachable_servers: list[Callable[[], Iterable[Unreachable]]] = []  # of the service itself
        self.halted: list[Callable[[], Iterable[str]]] = []  # work that the service does not do: what, why, what to do
        self.rejections = RejectionRecord()
        self.rebuilt = ""
        self.disk_free: float | None = None  # share of the log's disk, where it is known
        self.wal_disk_free: float | None = None  # the same of the write-ahead log's own disk
        self.base: datetime | None = None  # the snapshot at which the next rebuild begins
        self.compared: datetime | None = None  # the snapshot that is compared, and begins the rebuild after that
        self._rate = (time.monotonic(), 0, 0.0)

    @property
    def state(self) -> Any:
        """The folded State; another object after the log was rewound."""
        return self.follower.state

    def now_ns(self) -> int:
        """Reads the wall clock, which a shell passes to its decisions."""
        return time.time_ns()

    async def append(
        self, drafts: Sequence[Draft], *, now_ns: int, seen: Mapping[str, int] | None = None, config: str = ""
    ) -> list[RecordedEvent]:
        """Appends in one transaction; on return the events are committed and folded.

        Args:
            seen: the positions that the decision rests on; by default those of the State at this call.

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
        """Waits until the State changed since the last call; returns False on a timeout. Returns at once while
        draining.
        """
        if self.draining.is_set():
            return False
        return await self.follower.changed(timeout_s)

    def hold(self) -> AbstractContextManager[None]:
        """While leading: keeps the State at its positions, around a decision that awaits something; not around `append`."""
        return self.follower.hold()

    def before_fold(self, hook: BeforeFold | None) -> None:
        """While leading, calls `hook` with each record just before it is folded, with the State as it is then; None
        ends that.
        """
        self.follower.before_fold(hook)

    async def check_lock(self) -> None:
        """Makes a round trip on the lock's connection, before effects or responses that rest on no new event."""
        await self.writer.check_lock()

    def drain(self) -> None:
        """Makes `lead` return."""
        self.phase = "draining"
        self.draining.set()
        self.follower.wake()

    def status(self) -> Status:
        """Returns the content of `/statusz`."""
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
            disk_free=self.disk_free,
            wal_disk_free=self.wal_disk_free,
            unreachable=tuple(self._unreachable()),
            halted=tuple(text for found in self.halted for text in found()),
            rejected=self.rejections.newest(),
            counts=self.counts | {f"refused announcements of {name}": n for name, n in self.follower.refused.items()},
        )

    def _unreachable(self) -> Iterator[Unreachable]:
        if (database := self.database_contact.unreachable) is not None:
            yield database
        if (bus := self.bus.unreachable) is not None:
            yield bus
        for found in self.unreachable_servers:
            yield from found()

    async def snapshot(self) -> None:
        """Stores the State at its positions; one whose fold broke off is not stored."""
        if not self.follower.sound:
            return
        positions = dict(self.follower.positions)
        digest, packed = await pack_in_child(self.state)
        needed = [each for each in (self.base, self.compared) if each is not None]
        await self.store.write_snapshot(positions, self.state.SCHEMA, release(), packed, digest, needed)
