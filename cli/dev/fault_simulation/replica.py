"""One replica of a service: a simulated process that runs the service's own shell, and the supervisor that starts it
again.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from cli.dev.fault_simulation.api_transport import ApiTransport, MemoryConnections
from cli.dev.fault_simulation.log_adapters import MemoryDatabase, MemoryReader, MemoryStore
from cli.dev.fault_simulation.memory_bus import Broker, MemoryBus
from cli.dev.fault_simulation.memory_log import MemoryPostgres
from cli.dev.fault_simulation.virtual_loop import Process, VirtualLoop
from cli.service_list import load
from services.device_discovery.settings import DiscoverySettings
from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.service import lead as lead_gateway
from services.gateway.settings import GatewaySettings
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.quota_ledger.settings import LedgerSettings
from services.slo_controller.settings import SloSettings
from shared.errors import KoordError
from shared.log.database import FAILURES
from shared.log.follower_failure import Parked
from shared.log.position import Position
from shared.runtime.adapters import Adapters
from shared.runtime.retention_settings import DAYS, Retention
from shared.runtime.runner import serve
from shared.runtime.service import Environment, Runtime, Service

SERVICES = ("gateway", "scheduler", "quota-ledger", "slo-controller", "metrics-ingest", "action-ingest")
"""The services of every world."""
DISCOVERY = "device-discovery"
"""Runs in worlds whose nodes have devices."""
DESCHEDULER = "descheduler"
"""Runs in worlds whose pods are moved."""

SNAPSHOT_INTERVAL_S = 6.0
DAY_S = 86_400
ONE_SHOT_MAX_AGE_S = 3.0

GATEWAY = GatewaySettings(
    quiet_s=0,  # a request that changes no State; with it the same seed would draw other faults for all later ones
    timeout_s=1.5,
    deadline_s=3,
    page_size=6,
    watch_s=12,
    watch_idle_timeout_s=5,
    absent_poll_interval_s=10_000,
    sweep_interval_s=5,
    one_shot_max_age_s=ONE_SHOT_MAX_AGE_S,
    scheduled_events=False,
    short_list_min=1,
    short_list_interval_s=1,
    recheck_s=3,
    compare_interval_s=8,
    eviction_window_s=3_600,
    evictions_per_node=4,
    evictions_per_cluster=6,
    eviction_breaker=5,
    lease_s=3,
)

_SETTINGS: Mapping[str, Any] = {
    "gateway": GATEWAY,
    "slo-controller": SloSettings(poll_interval_s=2, silent_after_s=10),
    DISCOVERY: DiscoverySettings(change_interval_s=2, change_burst=2, stale_after_s=20),
    "quota-ledger": LedgerSettings(revoke=True, revoke_after_s=1.5),
    "metrics-ingest": IngestSettings(min_interval_s=1, node_metric_interval_s=60),
}
"""Service -> its settings; those of other services are their defaults."""


class Outside(NamedTuple):
    """All that the processes of a world share.

    Attributes:
        api: returns the way to the API server that the gateway's kubeconfig names now.
        report: records a broken invariant.
        kept_s: service -> seconds that its events are kept.
    """

    loop: VirtualLoop
    postgres: MemoryPostgres
    broker: Broker
    api: Callable[[], ApiTransport]
    report: Callable[[str], None]
    kept_s: dict[str, float]


class Replica:
    """A replica, run after run.

    Attributes:
        name: `service/number`.
        process: the current run's.
        runtime: the current run's; None before it has begun.
        believed: context -> the position that was last compared with the log.
        folded: number of events folded when they were compared.
        runs: number of runs so far.
        postgres: the server that has its log.
        retired: it is not started again.
    """

    def __init__(self, outside: Outside, service: str, number: int, restart_s: Callable[[], float]) -> None:
        self.service = service
        self.name = f"{service}/{number}"
        self.process = Process(self.name)
        self.runtime: Runtime | None = None
        self.believed: dict[str, Position] = {}
        self.folded = -1
        self.runs = 0
        self.skew_ns = 0
        self.postgres = outside.postgres
        self.retired = False
        self._outside = outside
        self._restart_s = restart_s
        self._declared = _declared(service, outside, self)

    @property
    def running(self) -> bool:
        """Reports whether a process of this replica runs."""
        return self.process.alive and self.runtime is not None

    def start(self) -> None:
        """Starts a run."""
        if self.retired:
            return
        self.runs += 1
        self.process = Process(f"{self.name}#{self.runs}", skew_ns=self.skew_ns)
        self.process.owner = self
        self.runtime = None
        self.believed, self.folded = {}, -1
        self._outside.loop.spawn(self.process, self._run(self.process)).add_done_callback(
            partial(self._ended, self.process), context=self._outside.loop.outside.context
        )

    def crash(self) -> None:
        """Ends the run at once, and starts the next one after a while."""
        process, self.runtime = self.process, None
        if not process.alive:
            return
        self._outside.loop.kill(process)
        self._outside.broker.forget(process)
        self._outside.postgres.end_sessions_of(process)
        self._start_later()

    def retire(self, *, drains: bool) -> None:
        """Ends the replica for good: it drains as after SIGTERM, or ends at once."""
        self.retired = True
        if drains and self.runtime is not None:
            self._outside.loop.call_soon(self.runtime.drain, context=self.process.context)
        else:
            self.crash()

    def set_retention(self) -> None:
        """Puts the world's retention in force."""
        kept_s = self._outside.kept_s.get(self.service)
        if self.runtime is not None:
            self.runtime.retention = Retention(days=kept_s / DAY_S if kept_s is not None else DAYS)

    async def _run(self, process: Process) -> None:
        outside = self._outside
        database = MemoryDatabase(outside.postgres)
        adapters = Adapters(
            database=lambda *_, **__: database,
            reader=MemoryReader,
            store=lambda _, service: MemoryStore(database, service),
            bus=lambda *_, **__: MemoryBus(outside.broker, process),
        )
        environment = Environment(
            postgres="postgresql://memory/log",
            replica=f"{self.name}#{self.runs}",
            snapshot_interval_s=SNAPSHOT_INTERVAL_S,
        )
        settings = _SETTINGS.get(self.service) or self._declared.settings()
        self.runtime = Runtime(self._declared, settings, environment, adapters)
        self.set_retention()
        await serve(self.runtime)

    def _ended(self, process: Process, task: "asyncio.Future[Any]") -> None:
        if process is not self.process or not process.alive:
            return
        error = None if task.cancelled() else task.exception()
        if self.retired and error is None:
            return
        if (text := unexpected(error)) is not None:
            self._outside.report(f"{self.name} ended with {text}")
        self.crash()

    def _start_later(self) -> None:
        loop = self._outside.loop
        loop.call_later(self._restart_s(), self.start, context=loop.outside.context)


def unexpected(error: BaseException | None) -> str | None:
    """Returns the text of an error with which no service should end: neither one for people nor one of the log's server.

    An event that cannot be folded, and an answer of the API server, end none either.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(unexpected, error.exceptions)), None)
    if isinstance(error, (Parked, ApiError)) or not isinstance(error, (KoordError, *FAILURES)):
        return repr(error)
    return None


def _declared(name: str, outside: Outside, replica: Replica) -> Service:
    service = load(name)
    if name != "gateway":
        return service

    def connect(_kubeconfig: str, **limits: Any) -> KubeApi:
        return KubeApi(connections=MemoryConnections(outside.api(), replica.process), **limits)

    return service._replace(lead=partial(lead_gateway, connect=connect), lifespan=None)
