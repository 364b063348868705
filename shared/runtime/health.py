"""`/healthz`, `/readyz`, `/metrics` and `/statusz` of a service, for probes, Prometheus and the supervisor."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from shared.runtime.status import DISK_LOW, Status

_STARTED = time.monotonic()


class Metrics:
    """Metrics of every service.

    Attributes:
        texts: called at each scrape for more of the page, as text; for a metric with more series than a registry can
            bear.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.texts: list[Callable[[], bytes]] = []
        self.lag = Gauge("koord_follower_lag_events", "Events announced and not folded yet", registry=self.registry)
        self.folded = Gauge("koord_follower_folded_events", "Events folded since the start", registry=self.registry)
        self.leading = Gauge("koord_writer_leading", "1 while this replica is the writer", registry=self.registry)
        self.appended = Counter("koord_log_appended_events", "Events appended", registry=self.registry)
        self.append_s = Histogram(
            "koord_log_append_seconds",
            "From the call to the commit",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
            registry=self.registry,
        )
        self.bus_refused = Gauge(
            "koord_bus_refused", "1 while NATS refuses the login or has refused a subject", registry=self.registry
        )
        self.disk_free = Gauge(
            "koord_log_disk_free_ratio", "Free share of the log's disk; 1 where it is not known", registry=self.registry
        )
        self.wal_disk_free = Gauge(
            "koord_wal_disk_free_ratio",
            "Free share of the write-ahead log's own disk; 1 where it is not known",
            registry=self.registry,
        )
        self.differences = Counter(
            "koord_rebuild_differences", "Rebuilds that differed from the state", registry=self.registry
        )


class Pages(NamedTuple):
    """Contents of the probes, computed at each request.

    Attributes:
        ready: readiness, and a text for it: the state, then a line for each trouble that leaves it ready.
        metrics: Prometheus' text.
        status: content of `/statusz`.
    """

    ready: Callable[[], tuple[bool, str]]
    metrics: Callable[[], bytes]
    status: Callable[[], Status]


async def serve(address: str, status: Callable[[], Status], metrics: Metrics) -> web.AppRunner:
    """Serves a service's pages on `host:port` until the runner is cleaned up."""

    def ready() -> tuple[bool, str]:
        now = status()
        return now.state in {"waiting-for-lock", "leading"}, ready_text(now)

    def text() -> bytes:
        now = status()
        metrics.lag.set(now.lag)
        metrics.folded.set(now.folded)
        metrics.leading.set(now.state == "leading")
        metrics.bus_refused.set(bool(now.refused))
        metrics.disk_free.set(1 if now.disk_free is None else now.disk_free)
        metrics.wal_disk_free.set(1 if now.wal_disk_free is None else now.wal_disk_free)
        return b"".join((generate_latest(metrics.registry), *(text() for text in metrics.texts)))

    return await serve_pages(address, Pages(ready, text, status))


def ready_text(status: Status) -> str:
    """Returns the text of `/readyz`: the state, and a line for each trouble.

    A service that cannot reach a server, or has halted, stays ready: it answers requests from what it has read, and
    taking it out of service would mend nothing.
    """
    lines = [status.state]
    if status.disk_free is not None and status.disk_free < DISK_LOW:
        lines.append(f"disk of the log: {status.disk_free:.0%} free")
    if status.wal_disk_free is not None and status.wal_disk_free < DISK_LOW:
        lines.append(f"disk of the write-ahead log: {status.wal_disk_free:.0%} free")
    return "\n".join([*lines, *status.halted, *map(str, status.unreachable)])


async def serve_pages(address: str, pages: Pages, more: Iterable[web.RouteDef] = ()) -> web.AppRunner:
    """Serves pages on `host:port` until the runner is cleaned up.

    Args:
        more: routes of other pages.
    """
    encode = msgspec.json.Encoder().encode

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        ready, state = pages.ready()
        return web.Response(text=f"{state}\n", status=200 if ready else 503)

    async def metricsz(_request: web.Request) -> web.Response:
        return web.Response(body=pages.metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def statusz(_request: web.Request) -> web.Response:
        return web.Response(body=encode(_of_this_process(pages.status())), content_type="application/json")

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metricsz),
            web.get("/statusz", statusz),
            *more,
        ]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()
    return runner


def _of_this_process(status: Status) -> Status:
    """Adds the process's uptime, cpu and memory, as far as the kernel reports them."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        pages = 0
    return msgspec.structs.replace(
        status,
        up_s=round(time.monotonic() - _STARTED, 1),
        cpu_s=round(time.process_time(), 2),
        rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
    )
