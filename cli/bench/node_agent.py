"""`koord bench agent`: cost of the node agent for its node, measured from outside, with real cgroups and a real bus."""

import asyncio
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec

import cli
from cli.bench.agent_pod_cgroups import QOS, PodCgroups
from cli.embedded import EmbeddedNats
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from cli.terminal.output import show_table
from services.node_agent.feature_gates import DEFAULTS
from services.node_agent.settings import NAME
from shared.agents import actions, device_inventory, node_slo, receipt, report, subjects
from shared.agents import node_pods as agent_pods
from shared.agents.node_pods import NodePods
from shared.agents.node_slo import NodeSlo
from shared.agents.receipt import Receipt
from shared.bus import Bus
from shared.errors import KoordError
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements

NODE = "bench-node"
WARM_S = 5.0
POLL_INTERVAL_S = 1.0


class AgentFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        cpu_percent: of one core, the agent and all processes below it.
        rss_mib: the largest sample of their memory.
        cycle_ms: wall time of a collection cycle, on average.
        interval_s: seconds between two cycles, as they came.
        report_bytes: of the last report.
        reports: that arrived while it was measured.
    """

    cpu_percent: float
    rss_mib: float
    cycle_ms: float
    interval_s: float
    pods: int
    seconds: float
    transport: str
    report_bytes: int
    reports: int
    load_1m: float


class NothingMeasured(KoordError):
    """The agent's reports do not match the node, so its cost means nothing."""


class Usage(NamedTuple):
    """Usage of a process with all below it."""

    cpu_s: float
    rss_mib: float


@click.command()
@click.option("--pods", type=click.IntRange(min=1), default=30, show_default=True, help="Pods on the node.")
@click.option("--seconds", type=float, default=120.0, show_default=True, help="How long it is measured.")
@click.option("--transport", type=click.Choice(["nats", "mqtt"]), default="nats", show_default=True)
@click.option("--report-every", type=float, default=15.0, show_default=True, help="Seconds between two reports.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def agent(*, pods: int, seconds: float, transport: Literal["nats", "mqtt"], report_every: float, as_json: bool) -> None:
    """Measure the cost of the node agent for its node at a sample a second.

    Makes that many cgroups with a process each (as root), runs the agent against an embedded NATS, and removes them
    again. It measures and enforces with all feature gates on; NodeSLO has CPU suppress, CPU burst, and CPU, memory
    and block I/O QoS. What this machine lacks, such as GPUs, costs nothing.
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        figures = asyncio.run(_measure(Path(name), pods, seconds, transport, report_every))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, pods: int, seconds: float, transport: str, report_every: float) -> AgentFigures:
    load_1m = os.getloadavg()[0]
    received: list[bytes] = []
    async with EmbeddedNats(folder / "nats") as nats:
        bus = Bus(nats.url, name="bench ingest")
        await bus.start()
        await _answer_reports(bus, received, transport)
        with PodCgroups() as cgroups:
            logs = folder / "containers"
            logs.mkdir()
            for number in range(pods):
                container = f"{number:064x}"
                qos = QOS[number % len(QOS)]
                cgroups.add(qos=qos, burn_ms=20 if number % 3 == 0 else 0, container=container)
                if qos != "besteffort":
                    cgroups.limit(container, milli=500)
                (logs / f"p{number}_bench_c-{container}.log").touch()
            await _answer_actions(bus, cgroups.uids)
            await _answer_inventories(bus)
            http = f"127.0.0.1:{free_port()}"
            process = _agent(folder, nats, cgroups.parent, transport, report_every, http)
            process.start()
            try:
                await asyncio.to_thread(process.wait_until, lambda: _ready(http), 30)
                await asyncio.sleep(WARM_S)
                before = len(received)
                figures = await _watch(process, http, seconds)
                reports = len(received) - before
            finally:
                await asyncio.to_thread(process.stop)
        await bus.close()
    _check(received, pods)
    return AgentFigures(
        *figures,
        pods=pods,
        seconds=seconds,
        transport=transport,
        report_bytes=len(received[-1]),
        reports=reports,
        load_1m=load_1m,
    )


async def _answer_reports(bus: Bus, received: list[bytes], transport: str) -> None:
    """Acts as ingest: answers over NATS; over MQTT, which the server maps to the same subject, only listens."""
    subject = subjects.every_subject(subjects.REPORT)

    async def accept(data: bytes) -> bytes:
        received.append(data)
        found = report.decode(data, NODE)
        return receipt.encode(Receipt("report", found.boot, found.seq))

    if transport == "nats":
        await bus.respond(subject, accept)
    else:
        await bus.subscribe(subject, received.append)


async def _answer_actions(bus: Bus, uids: list[str]) -> None:
    """Acts as action ingest: accepts actions, and publishes the agent's pods and NodeSLO."""
    found = tuple(_pod(number, uid) for number, uid in enumerate(uids))
    amounts = {"cpu": str(os.cpu_count()), "memory": "16Gi"}
    node = Node(metadata=Metadata(name=NODE), status=NodeStatus(capacity=amounts, allocatable=amounts))
    spec = {
        "resourceUsedThresholdWithBE": {"enable": True},
        "cpuBurstStrategy": {"policy": "auto"},
        "resourceQOSStrategy": {
            name: {
                "cpuQOS": {"enable": True},
                "memoryQOS": {"enable": True, "minLimitPercent": 10},
                "resctrlQOS": {"enable": True},
                "blkioQOS": {"enable": True},
            }
            for name in ("lsrClass", "lsClass", "beClass")
        },
    }

    async def accept(data: bytes) -> bytes:
        action = actions.decode(data, NODE)
        await bus.publish(
            subjects.subject(NODE, subjects.PODS), agent_pods.encode(NodePods(NODE, 1, 1, node, None, found))
        )
        await bus.publish(subjects.subject(NODE, subjects.SLO), node_slo.encode(NodeSlo(NODE, 1, 1, spec)))
        return receipt.encode(Receipt("action", action.boot, action.seq))

    await bus.respond(subjects.every_subject(subjects.ACTION), accept)


async def _answer_inventories(bus: Bus) -> None:
    """Acts as device discovery: accepts the devices of the node."""

    async def accept(data: bytes) -> bytes:
        found = device_inventory.decode(data, NODE)
        return receipt.encode(Receipt("inventory", found.boot, found.seq))

    await bus.respond(subjects.every_subject(subjects.INVENTORY), accept)


def _pod(number: int, uid: str) -> Pod:
    """Returns a pod: of each three one is prod with a limit, one burstable, one batch, as their cgroups lie."""
    kube = ("Guaranteed", "Burstable", "BestEffort")[number % len(QOS)]
    labels = {"koordinator.sh/qosClass": "BE" if kube == "BestEffort" else "LS"}
    if kube == "BestEffort":
        amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "256Mi"}
    else:
        amounts = {"cpu": "500m", "memory": "256Mi"}
    container = Container(name="c", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(
        metadata=Metadata(name=f"p{number}", namespace="bench", uid=uid, labels=labels),
        spec=PodSpec(priority=5500 if kube == "BestEffort" else 9500, containers=(container,)),
        status=PodStatus(phase="Running", qos_class=kube),
    )


def _agent(folder: Path, nats: EmbeddedNats, parent: str, transport: str, report_every: float, http: str) -> Process:
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        "KOORD_NATS": nats.url,
        "KOORD_MQTT": nats.mqtt_url,
        "KOORD_HTTP_ADDR": http,
        "KOORD_NODE_AGENT_NODE": NODE,
        "KOORD_NODE_AGENT_TRANSPORT": transport,
        "KOORD_NODE_AGENT_CGROUP_PARENT": parent,
        "KOORD_NODE_AGENT_REPORT_INTERVAL_S": str(report_every),
        "KOORD_NODE_AGENT_STATE_DIR": str(folder / "state"),
        "KOORD_NODE_AGENT_CONTAINER_LOGS": str(folder / "containers"),
        "KOORD_NODE_AGENT_POD_RESOURCES_PROXY": str(folder / "pod-resources"),
        "KOORD_NODE_AGENT_FEATURES": ",".join(f"{gate}=true" for gate in DEFAULTS),
    }
    return Process(NAME, [sys.executable, "-P", "-m", "cli", "run", NAME], folder / "agent.log", env=env)


async def _watch(process: Process, http: str, seconds: float) -> tuple[float, float, float, float]:
    """Returns cpu percent, RSS in MiB, milliseconds a cycle, seconds between cycles."""
    assert process.pid is not None
    began, cycles, cycle_s = time.monotonic(), *await asyncio.to_thread(_cycles, http)
    cpu_s, rss_mib = _used(process.pid).cpu_s, 0.0
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(POLL_INTERVAL_S, left))
        rss_mib = max(rss_mib, _used(process.pid).rss_mib)
    used_s = _used(process.pid).cpu_s - cpu_s
    elapsed_s = time.monotonic() - began
    more, more_s = await asyncio.to_thread(_cycles, http)
    done = more - cycles
    if not done:
        raise NothingMeasured(f"the agent made no round in {seconds:g} s; its log ends with:\n{process.tail()}")
    return (
        round(100 * used_s / elapsed_s, 3),
        round(rss_mib, 1),
        round((more_s - cycle_s) / done * 1000, 3),
        round(elapsed_s / done, 3),
    )


def _used(root: int) -> Usage:
    """Returns CPU time (of ended children too) and memory of a process and all below it, from /proc."""
    hertz, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    parents: dict[int, int] = {}
    found: dict[int, Usage] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(name)
        parents[pid] = int(fields[1])
        found[pid] = Usage(sum(map(int, fields[11:15])) / hertz, int(fields[21]) * page / 2**20)
    below = [pid for pid in found if root in _line(pid, parents)]
    return Usage(sum(found[pid].cpu_s for pid in below), sum(found[pid].rss_mib for pid in below))


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    """Returns a process and its ancestors."""
    line = [pid]
    while (parent := parents.get(line[-1], 0)) and parent not in line:
        line.append(parent)
    return line


def _ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=1) as page:
            return bool(page.status == 200)
    except OSError:
        return False


def _cycles(http: str) -> tuple[float, float]:
    """Returns the number of the agent's cycles, and the seconds they took."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    label = f'{{node="{NODE}"}}'
    cycles, seconds = (float(values[f"koord_node_agent_{name}_total{label}"]) for name in ("cycles", "cycles_seconds"))
    return cycles, seconds


def _check(received: list[bytes], pods: int) -> None:
    """Checks that a report has the pods that exist.

    It is the longest one: the last one may be of a moment in which a pod slept, since an agent sends at its end what it
    has.
    """
    if not received:
        raise NothingMeasured("no report arrived; measure for longer than a report's interval")
    longest = max((report.decode(data, NODE) for data in received), key=lambda one: one.interval_ns)
    busy = sum(pod.cpu_sum > 0 and pod.memory_sum > 0 for pod in longest.pods)
    if busy != pods or not longest.node_usage.cpu:
        raise NothingMeasured(f"the longest report has {busy} pods that use anything, of {pods}")
