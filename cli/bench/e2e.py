"""`koord bench e2e`: how fast pods get from the API to their nodes, and how that compares with kube-scheduler."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Literal

import click
import msgspec
import uvloop

from cli.bench.e2e_on_kube_apiserver import KubeSide
from cli.bench.e2e_on_simulator import SimulatorSide
from cli.bench.e2e_pod_latency import Figures
from cli.bench.e2e_target import best, measure
from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from cli.supervisor.system_servers import Servers
from cli.terminal.output import show_table
from shared.bus import Bus

Note = Callable[[str], None]

OURS, THEIRS = "koord-scheduler", "default-scheduler"
READY_WITHIN_S = 60.0
NAMESPACE = "bench"
PODS_PER_NODE = 64  # by their cpu
GATEWAY_ACCOUNT = ("koordinator-system", "koordstream-gateway")
K8S = Path(__file__).parents[2] / "k8s" / "base"

UNLIMITED = ("--kube-api-qps=10000", "--kube-api-burst=10000")
"""kube-scheduler's own client would hold it to 50 requests a second."""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of `--json`.

    Attributes:
        pods_per_s, latency_p50_s, latency_p99_s: of the best turn.
        turns: all turns, in order.
        memory_mib: most resident memory of each service at the end of a turn.
        load_1m: the machine's load average at the start: what else ran.
        against: the best turn of the other scheduler, on the same API server in the same run.
        gang_size: pods of a gang; 0 where no gangs were measured.
        gangs: the best turn of as many equal pods in gangs, on the same API server in the same run.
        gang_ratios: of each turn, `pods_per_s` with gangs / without; other work weighs on both alike.
        gang_ratio: their median.
    """

    api: str
    scheduler: str
    nodes: int
    pods: int
    pods_per_s: float
    latency_p50_s: float
    latency_p99_s: float
    turns: tuple[Figures, ...]
    memory_mib: dict[str, int]
    load_1m: float
    against: Figures | None = None
    against_turns: tuple[Figures, ...] = ()
    gang_size: int = 0
    gangs: Figures | None = None
    gang_turns: tuple[Figures, ...] = ()
    gang_ratios: tuple[float, ...] = ()
    gang_ratio: float = 0.0


class _KubeTurns(msgspec.Struct):
    """Figures measured on kube-apiserver so far, and the number of runs, by which each names its pods."""

    ours: list[Figures] = msgspec.field(default_factory=list)
    gangs: list[Figures] = msgspec.field(default_factory=list)
    theirs: list[Figures] = msgspec.field(default_factory=list)
    runs: int = 0

    def next_run(self) -> int:
        self.runs += 1
        return self.runs


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=100, show_default=True, help="Nodes of 32 cores, 256 GiB.")
@click.option("--pods", type=click.IntRange(min=1), default=1000, show_default=True, help="Pods of 500m, 512Mi.")
@click.option(
    "--api", type=click.Choice(["simulator", "kube"]), default="simulator", show_default=True, help="On what."
)
@click.option(
    "--against", type=click.Choice([THEIRS]), help="Measure this one too, turn and turn about; with `--api kube`."
)
@click.option(
    "--gang-size", type=click.IntRange(min=2),
    help="Measure the same pods in gangs of so many too, turn and turn about; with `--api kube`.",
)  # fmt: skip
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True, help="The best one counts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def e2e(
    *,
    nodes: int,
    pods: int,
    api: Literal["simulator", "kube"],
    against: str | None,
    gang_size: int | None,
    turns: int,
    as_json: bool,
) -> None:
    """Measure how fast pods get from the API to their nodes.

    Starts servers and services of its own, creates the pods as fast as the API takes them (64 at once), and notes when
    each is seen bound. Latency runs from the answer that a pod was created to its bound event.
    """
    if against and api != "kube":
        raise click.UsageError("--against needs --api kube: the other scheduler runs on a kube-apiserver only")
    if gang_size and api != "kube":
        raise click.UsageError("--gang-size needs --api kube: the simulator has no PodGroups")
    if pods > PODS_PER_NODE * nodes:
        raise click.UsageError(f"{nodes} nodes hold {PODS_PER_NODE * nodes} pods; give more --nodes or fewer --pods")

    def note(text: str) -> None:
        click.echo(text, err=True)

    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if api == "kube":
                result = runner.run(
                    _on_kube(folder, nodes, pods, turns, note, against=bool(against), gang_size=gang_size or 0)
                )
            else:
                result = runner.run(_on_simulator(folder, nodes, pods, turns, note))
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _show(result)


async def _on_simulator(folder: Path, nodes: int, pods: int, turns: int, note: Note) -> Result:
    load_1m = os.getloadavg()[0]
    settings = {"NODES": str(nodes), "HOT_PERCENT": "0", "REPORT_INTERVAL_S": "0", "KEEP_ENDED_S": "0"}
    simulator = Spec("simulator", "simulator", {f"KOORD_SIMULATOR_{key}": value for key, value in settings.items()})
    done: list[Figures] = []
    memory: dict[str, int] = {}
    async with _servers(folder) as endpoints, _services(endpoints, folder, simulator) as supervisor:
        bus = Bus(endpoints.nats, name="koord bench")
        await bus.start()
        side = SimulatorSide(bus, OURS)
        for turn in range(turns):
            note(f"{OURS} on the simulator, turn {turn + 1} of {turns}")
            done.append(await measure(side, pods, turn, note))
        _watch_memory(memory, supervisor)
        await bus.close()
    return _result("simulator", nodes, pods, done, memory, load_1m)


async def _on_kube(
    folder: Path, nodes: int, pods: int, turns: int, note: Note, *, against: bool, gang_size: int
) -> Result:
    load_1m = os.getloadavg()[0]
    measured = _KubeTurns()
    memory: dict[str, int] = {}
    with ExitStack() as started:
        note("starting etcd and kube-apiserver")
        cluster = await asyncio.to_thread(started.enter_context, Cluster())
        await asyncio.to_thread(_prepare, cluster, nodes)
        kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, *GATEWAY_ACCOUNT)
        gateway = Spec("gateway", "gateway", {"KOORD_GATEWAY_KUBECONFIG": str(kubeconfig)})
        async with _servers(folder) as endpoints:
            for turn in range(turns):
                note(f"{OURS} on kube-apiserver, turn {turn + 1} of {turns}")
                async with _services(endpoints, folder, gateway) as supervisor:
                    await _our_turn(cluster, pods, gang_size, measured, note, gangs_first=turn % 2 == 1)
                    _watch_memory(memory, supervisor)
                if against:
                    note(f"{THEIRS} on kube-apiserver, turn {turn + 1} of {turns}")
                    measured.theirs.append(await _their_turn(cluster, pods, measured.next_run(), note))
    return _with_gangs(
        _result("kube", nodes, pods, measured.ours, memory, load_1m, measured.theirs), measured, gang_size
    )


async def _our_turn(
    cluster: Cluster, pods: int, gang_size: int, measured: _KubeTurns, note: Note, *, gangs_first: bool
) -> None:
    """Measures pods without gangs, and with them if `gang_size` is given; which comes first changes with the turn."""
    kinds = [(0, measured.ours), *([(gang_size, measured.gangs)] if gang_size else [])]
    for size, figures in reversed(kinds) if gangs_first else kinds:
        if size:
            note(f"  in gangs of {size}:")
        async with KubeSide(cluster.url, cluster.api.tls, NAMESPACE, OURS, gang_size=size) as side:
            figures.append(await measure(side, pods, measured.next_run(), note))


async def _their_turn(cluster: Cluster, pods: int, turn: int, note: Note) -> Figures:
    """Ours is stopped meanwhile: it would follow every pod."""
    scheduler = await asyncio.to_thread(cluster.start_scheduler, *UNLIMITED)
    try:
        async with KubeSide(cluster.url, cluster.api.tls, NAMESPACE, THEIRS) as side:
            return await measure(side, pods, turn, note)
    finally:
        await asyncio.to_thread(scheduler.stop)


def _with_gangs(result: Result, measured: _KubeTurns, gang_size: int) -> Result:
    if not measured.gangs:
        return result
    pairs = zip(measured.gangs, measured.ours, strict=True)
    ratios = tuple(round(gangs.pods_per_s / without.pods_per_s, 3) for gangs, without in pairs)
    return msgspec.structs.replace(
        result,
        gang_size=gang_size,
        gangs=best(measured.gangs),
        gang_turns=tuple(measured.gangs),
        gang_ratios=ratios,
        gang_ratio=round(median(ratios), 3),
    )


def _prepare(cluster: Cluster, nodes: int) -> None:
    cluster.apply(K8S, "--server-side")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    cluster.create_namespace(NAMESPACE)
    create_nodes(cluster.api, [node_object(f"node-{number:04d}") for number in range(nodes)])


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[Endpoints]:
    async with Servers(folder, alone=True) as servers:
        yield servers.endpoints


@asynccontextmanager
async def _services(endpoints: Endpoints, folder: Path, api: Spec) -> AsyncIterator[Supervisor]:
    """The service that speaks to the API and the scheduler, both leading."""
    async with AsyncExitStack() as running:
        supervisor = Supervisor([api, Spec("scheduler", "scheduler")], endpoints, folder, log_level="warning")
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_until(lambda unit: unit.state == "leading", READY_WITHIN_S, "leading")
        yield supervisor


def _watch_memory(most: dict[str, int], supervisor: Supervisor) -> None:
    import psutil

    for name, unit in supervisor.units.items():
        if unit.process.pid:
            resident = psutil.Process(unit.process.pid).memory_info().rss >> 20
            most[name] = max(resident, most.get(name, 0))


def _result(
    api: str,
    nodes: int,
    pods: int,
    ours: Sequence[Figures],
    memory: dict[str, int],
    load_1m: float,
    theirs: Sequence[Figures] = (),
) -> Result:
    winner = best(ours)
    return Result(
        api=api,
        scheduler=OURS,
        nodes=nodes,
        pods=pods,
        pods_per_s=winner.pods_per_s,
        latency_p50_s=winner.latency_p50_s,
        latency_p99_s=winner.latency_p99_s,
        turns=tuple(ours),
        memory_mib=dict(sorted(memory.items())),
        load_1m=round(load_1m, 2),
        against=best(theirs) if theirs else None,
        against_turns=tuple(theirs),
    )


def _show(result: Result) -> None:
    columns = ("scheduler", "pods per second", "p50", "p99")
    rows = [(result.scheduler, result.pods_per_s, f"{result.latency_p50_s:.3f} s", f"{result.latency_p99_s:.3f} s")]
    if result.gangs:
        ours = result.gangs
        name = f"{result.scheduler}, gangs of {result.gang_size}"
        rows.append((name, ours.pods_per_s, f"{ours.latency_p50_s:.3f} s", f"{ours.latency_p99_s:.3f} s"))
    if result.against:
        other = result.against
        rows.append((THEIRS, other.pods_per_s, f"{other.latency_p50_s:.3f} s", f"{other.latency_p99_s:.3f} s"))
    show_table(columns, rows)
    memory = ", ".join(f"{name} {mib} MiB" for name, mib in result.memory_mib.items())
    click.echo(
        f"\n{result.pods:,} pods on {result.nodes:,} nodes, {result.api}; best of {len(result.turns)}. {memory}."
    )
