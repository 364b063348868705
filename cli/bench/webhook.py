"""`koord bench webhook`: admission requests of an API server that one gateway serves, and their latency, over HTTPS
from another process.
"""

import asyncio
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import psutil
from prometheus_client import CollectorRegistry

import cli
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from cli.terminal.output import show_table
from services.gateway.webhooks.admission_handlers import AdmissionHandlers, AdmissionSettings
from services.gateway.webhooks.admission_state import CLASSES, NAMESPACES, PROFILES, AdmissionState
from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, next_bundle
from services.gateway.webhooks.server import WebhookMetrics, WebhookServer
from services.gateway.webhooks.webhook_definitions import WEBHOOKS
from shared.admission.feature_gates import gates_of
from shared.errors import KoordError
from shared.events.cluster import InitialListCompleted, ObjectObserved
from shared.kube import resource_names

PATHS = ("/mutate-pod", "/validate-pod")
CONNECTIONS = 16
QUOTAS = resource_names.QUOTAS
_LIFETIMES = Lifetimes(timedelta(days=10), timedelta(days=1), timedelta(minutes=1))


class WebhookFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        answers_per_s: as many as come from CONNECTIONS connections that send the next request at once; two are one pod.
        cpu_ms_per_answer: of the process that answers.
        p50_ms, p99_ms: at `rate` requests a second, from the instant at which each was due.
    """

    answers_per_s: float
    cpu_ms_per_answer: float
    p50_ms: float
    p99_ms: float
    rate: float
    profiles: int
    namespaces: int
    quotas: int
    seconds: float
    load_1m: float


class WrongAnswer(KoordError):
    """The pods were not changed, so the figures mean nothing."""


@click.command()
@click.option(
    "--profiles", type=click.IntRange(min=1), default=20, show_default=True, help="One of them selects the pods."
)
@click.option("--namespaces", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--quotas", type=click.IntRange(min=0), default=500, show_default=True)
@click.option("--rate", type=float, default=200.0, show_default=True, help="Requests a second, for the latency.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="How long each of the two is measured.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def webhook(*, profiles: int, namespaces: int, quotas: int, rate: float, seconds: float, as_json: bool) -> None:
    """Measure the admission webhooks alone: no log, no cluster.

    A process of its own serves the pod webhooks over HTTPS from a state of that size; this one sends requests, as an
    API server does, with connections that stay open.
    """
    load_1m = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        per_s, cpu_s, times = asyncio.run(_measure(Path(name), (profiles, namespaces, quotas), rate, seconds))
    times.sort()
    figures = WebhookFigures(
        answers_per_s=round(per_s, 1),
        cpu_ms_per_answer=round(cpu_s * 1_000, 2),
        p50_ms=round(times[len(times) // 2] * 1_000, 2),
        p99_ms=round(times[int(len(times) * 0.99)] * 1_000, 2),
        rate=rate,
        profiles=profiles,
        namespaces=namespaces,
        quotas=quotas,
        seconds=seconds,
        load_1m=round(load_1m, 2),
    )
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(
    folder: Path, size: tuple[int, int, int], rate: float, seconds: float
) -> tuple[float, float, list[float]]:
    """Answers a second, seconds of a core for one, and times."""
    port = free_port()
    arguments = (str(folder / "ca.crt"), port, *size)
    command = [sys.executable, "-c", f"from cli.bench.webhook import serve; serve{arguments!r}"]
    process = Process(
        "webhooks",
        command,
        folder / "webhooks.log",
        env=os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])},
    )
    process.start()
    try:
        await asyncio.to_thread(process.wait_until, (folder / "ready").exists, 60)
        async with _asker(folder / "ca.crt", port) as send:
            await send(0)
            before = _cpu_s(process)
            per_s = await _throughput(send, seconds)
            cpu_s = (_cpu_s(process) - before) / (per_s * seconds)
            return per_s, cpu_s, await _latency(send, rate, seconds)
    finally:
        await asyncio.to_thread(process.stop)


def _cpu_s(process: Process) -> float:
    assert process.pid is not None, "it is running"
    used = psutil.Process(process.pid).cpu_times()
    return float(used.user + used.system)


@asynccontextmanager
async def _asker(authorities: Path, port: int) -> Any:
    tls = ssl.create_default_context(cafile=str(authorities))
    connector = aiohttp.TCPConnector(ssl=tls, limit=4 * CONNECTIONS)
    bodies = [msgspec.json.encode(_question(number)) for number in range(100)]
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:

        async def send(number: int) -> None:
            path = PATHS[number % 2]
            async with session.post(path, data=bodies[number % 100]) as answer:
                found = await answer.json()
            changed = "patch" in found["response"]
            if not found["response"]["allowed"] or changed != (path == "/mutate-pod"):
                raise WrongAnswer(f"{path}: {found}")

        yield send


async def _throughput(send: Any, seconds: float) -> float:
    numbers, until = count(), time.monotonic() + seconds

    async def keep_sending() -> int:
        answered = 0
        while time.monotonic() < until:
            await send(next(numbers))
            answered += 1
        return answered

    return sum(await asyncio.gather(*(keep_sending() for _ in range(CONNECTIONS)))) / seconds


async def _latency(send: Any, rate: float, seconds: float) -> list[float]:
    began, times = time.monotonic(), []

    async def one(number: int) -> None:
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await send(number)
        times.append(time.monotonic() - due)

    await asyncio.gather(*(one(number) for number in range(int(rate * seconds))))
    return times


def _question(number: int) -> dict[str, Any]:
    """Returns a request to create a batch pod."""
    amounts = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    containers = [
        {
            "name": f"c{each}",
            "image": "i",
            "resources": amounts,
            "env": [{"name": f"V{n}", "value": "x" * 20} for n in range(20)],
        }
        for each in range(2)
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p-{number}", "namespace": "ns-0", "labels": {"app": "app-0"}},
        "spec": {"containers": containers, "restartPolicy": "Always", "serviceAccountName": "default"},
    }
    request = {"uid": f"u-{number}", "operation": "CREATE", "namespace": "ns-0", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _objects(profiles: int, namespaces: int, quotas: int) -> Iterator[ObjectObserved]:
    def observed(resource: str, name: str, *, namespace: str = "", **parts: Any) -> ObjectObserved:
        key = f"{namespace}/{name}" if namespace else name
        metadata = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
        return ObjectObserved(resource=resource, name=key, uid=key, object={"metadata": metadata, **parts})

    for number in range(namespaces):
        yield observed(NAMESPACES, f"ns-{number}", metadata={"labels": {"team": f"t{number % 10}"}})
    yield observed(CLASSES, "koord-batch", value=5000)
    for number in range(profiles):
        spec = {
            "namespaceSelector": {"matchLabels": {"team": "t0"}},
            "selector": {"matchLabels": {"app": f"app-{number}"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "labels": {"tier": "batch"},
        }
        yield observed(PROFILES, f"profile-{number}", spec=spec)
    for number in range(quotas):
        limits = {"max": {"cpu": "10"}, "min": {"cpu": "1"}}
        yield observed(QUOTAS, f"quota-{number}", namespace=f"ns-{number % namespaces}", spec=limits)


def serve(authorities: str, port: int, profiles: int, namespaces: int, quotas: int) -> None:
    """The other process: serves until it is ended; the file `ready` next to the authorities marks that it does."""
    view = AdmissionState()
    for event in _objects(profiles, namespaces, quotas):
        view.apply(event)
    view.apply(InitialListCompleted(objects=0))
    bundle = next_bundle(None, ("127.0.0.1",), _LIFETIMES, datetime.now(UTC))
    assert bundle is not None, "there was none before"
    Path(authorities).write_bytes(bundle.authorities)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(view, port, bundle, Path(authorities).parent / "ready"))


async def _serve(view: AdmissionState, port: int, bundle: CertificateBundle, ready: Path) -> None:
    admission = AdmissionHandlers(view, tuple, AdmissionSettings(gates_of(""), "koordinator-system"))
    metrics = WebhookMetrics(CollectorRegistry())
    server = WebhookServer(f"127.0.0.1:{port}", WEBHOOKS, lambda: admission, lambda: view.changes, metrics)
    server.use_certificate(bundle)
    await server.start()
    await asyncio.to_thread(ready.touch)
    await asyncio.Event().wait()
