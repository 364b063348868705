"""`koord bench proxy`: latency that the runtime proxy adds to a kubelet's call, without a hook and with one in the call."""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import grpc
import msgspec

import cli
from cli.bench.instant_runtime import SANDBOX, container_id
from cli.bench.process_costs import peak_bytes
from cli.embedded import EmbeddedNats
from cli.processes.child_process import Process
from cli.terminal.output import show_table
from services.node_agent.hook_server.hook_server import REGISTRATION
from services.runtime_proxy import cri_messages as cri
from shared.errors import KoordError

NODE = "bench-node"
BLOCK = 50
"""Calls of one kind in turn, before those of the next: all kinds meet the same other work of the machine."""
READY_S = 60.0
SHARES = 512
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
POD = {
    "metadata": {"name": "p", "namespace": "bench", "uid": "u"},
    "labels": {"koordinator.sh/qosClass": "BE"},
    "annotations": {
        "node.koordinator.sh/extended-resource-spec": json.dumps(
            {"containers": {"main": {"requests": BATCH, "limits": BATCH}}}
        )
    },
    "linux": {"cgroup_parent": "/kubepods/besteffort/podu"},
}


class Added(msgspec.Struct, frozen=True):
    """Milliseconds of one kind of call: to the runtime, through the proxy, and their difference."""

    direct_p50: float
    direct_p99: float
    proxy_p50: float
    proxy_p99: float
    added_p50: float
    added_p99: float


class ProxyFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        plain: Status, which passes as bytes. hooked: CreateContainer, with the agent's hooks in the call.
        rss_mib: the largest memory of the proxy.
    """

    plain: Added
    hooked: Added
    rss_mib: float
    calls: int
    load_1m: float


class NotHooked(KoordError):
    """A container was created without the values of its hooks, so its latency means nothing."""


class _Site(NamedTuple):
    """Sockets of runtime and proxy, and the proxy's process."""

    runtime: Path
    proxy: Path
    process: Process


@click.command()
@click.option("--calls", type=click.IntRange(min=BLOCK), default=1500, show_default=True, help="Calls of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def proxy(*, calls: int, as_json: bool) -> None:
    """Measure the latency that the runtime proxy adds to a call of the kubelet, without and with a hook in it.

    Calls go one after the other to a runtime that answers at once, directly and through the proxy. The hook server is
    a node agent, whose hooks give a batch container its CPU shares, quota and memory limit.
    """
    load_1m = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        plain, hooked, rss_mib = asyncio.run(_measure(Path(name), calls))
    figures = ProxyFigures(plain, hooked, rss_mib, calls, round(load_1m, 1))
    if as_json:
        click.echo(msgspec.json.encode(figures))
        return
    rows = [(kind, *msgspec.structs.astuple(added)) for kind, added in (("Status", plain), ("CreateContainer", hooked))]
    show_table(("ms", *(field.replace("_", " ") for field in Added.__struct_fields__)), rows)
    click.echo(f"memory of the proxy: {rss_mib} MiB; load {figures.load_1m}")


async def _measure(folder: Path, calls: int) -> tuple[Added, Added, float]:
    runtime, socket, registrations = folder / "r.sock", folder / "p.sock", folder / "hooks"
    async with EmbeddedNats(folder / "nats") as nats:
        backend = _process(folder, "bench runtime", ["cli.bench.instant_runtime", str(runtime)], {})
        flags = [f"--koord-runtimeproxy-endpoint={socket}", f"--remote-runtime-service-endpoint={runtime}"]
        proxy_variables = {"KOORD_RUNTIME_PROXY_REGISTRATIONS": str(registrations)}
        between = _process(folder, "runtime-proxy", ["cli", "run", "runtime-proxy", *flags], proxy_variables)
        agent = _process(folder, "node-agent", ["cli", "run", "node-agent"], _agent(folder, nats.url, registrations))
        started: list[Process] = []
        try:
            for process, ready in ((backend, runtime), (between, socket), (agent, registrations / REGISTRATION)):
                started.append(process)
                process.start()
                await asyncio.to_thread(process.wait_until, ready.exists, READY_S)
            return await _called(_Site(runtime, socket, between), calls)
        finally:
            for process in reversed(started):
                await asyncio.to_thread(process.stop)


def _process(folder: Path, name: str, module: list[str], variables: Mapping[str, str]) -> Process:
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1]), **variables}
    return Process(name, [sys.executable, "-P", "-m", *module], folder / f"{name}.log", env=env)


def _agent(folder: Path, nats: str, registrations: Path) -> dict[str, str]:
    """Returns the variables of an agent that serves its hooks, and finds no pods whose cgroups it could change."""
    own = {
        "NODE": NODE,
        "CGROUP_PARENT": "koord-bench-none",
        "STATE_DIR": str(folder / "state"),
        "CONTAINER_LOGS": str(folder / "containers"),
        "HOOK_SERVER": "true",
        "HOOK_SERVER_SOCKET": str(folder / "a.sock"),
        "HOOK_REGISTRATIONS": str(registrations),
        "HOOK_FAILURE_POLICY": "Fail",
    }
    return {"KOORD_NATS": nats, **{f"KOORD_NODE_AGENT_{name}": value for name, value in own.items()}}


async def _called(site: _Site, calls: int) -> tuple[Added, Added, float]:
    async with (
        grpc.aio.insecure_channel(f"unix:{site.runtime}") as direct,
        grpc.aio.insecure_channel(f"unix:{site.proxy}") as through,
    ):
        run = cri.RunPodSandboxRequest(config=POD).SerializeToString()
        await through.unary_unary(f"{cri.RUNTIME_SERVICE}RunPodSandbox")(run)
        kinds = {
            ("plain", "direct"): _status(direct),
            ("plain", "proxy"): _status(through),
            ("hooked", "direct"): _create(direct, shares=2),
            ("hooked", "proxy"): _create(through, shares=SHARES),
        }
        took_ms: dict[tuple[str, str], list[float]] = {kind: [] for kind in kinds}
        for call in kinds.values():
            await call()  # the first one connects
        for first in range(0, calls, BLOCK):
            for kind, call in kinds.items():
                for _ in range(min(BLOCK, calls - first)):
                    began_ns = time.perf_counter_ns()
                    await call()
                    took_ms[kind].append((time.perf_counter_ns() - began_ns) / 1e6)
    plain, hooked = (_added(took_ms[kind, "direct"], took_ms[kind, "proxy"]) for kind in ("plain", "hooked"))
    return plain, hooked, round(peak_bytes(site.process) / 2**20, 1)


def _status(channel: Any) -> Callable[[], Awaitable[None]]:
    method = channel.unary_unary(f"{cri.RUNTIME_SERVICE}Status")

    async def call() -> None:
        await method(b"")

    return call


def _create(channel: Any, *, shares: int) -> Callable[[], Awaitable[None]]:
    """Returns a call that creates a container, and checks the shares that reach the runtime."""
    method = channel.unary_unary(f"{cri.RUNTIME_SERVICE}CreateContainer")
    config = {"metadata": {"name": "main"}, "linux": {"resources": {"cpu_shares": 2}}}
    request = cri.CreateContainerRequest(pod_sandbox_id=SANDBOX, config=config, sandbox_config=POD)
    data = request.SerializeToString()

    async def call() -> None:
        found = cri.CreateContainerResponse.FromString(await method(data)).container_id
        if found != container_id(shares):
            raise NotHooked(f"a container has {int(found, 16)} CPU shares, not {shares}")

    return call


def _added(direct_ms: list[float], proxy_ms: list[float]) -> Added:
    direct, through = (statistics.quantiles(values, n=100) for values in (direct_ms, proxy_ms))
    figures = [direct[49], direct[98], through[49], through[98], through[49] - direct[49], through[98] - direct[98]]
    return Added(*(round(each, 3) for each in figures))
