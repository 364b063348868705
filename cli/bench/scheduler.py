"""`koord bench scheduler`: the engine alone, without servers: cycles decided, recorded and folded.

Every node is considered for every class of pods, with all plugins of the profile; CycleDecided and the pods' events are
built and folded back. What is not timed: making the pods, and folding their observation (reported beside it).
"""

import gc
import os
import resource
import time
from itertools import islice
from pathlib import Path

import click
import msgspec

from cli.bench.scheduler_workloads import KINDS, NOW_NS, nodes, pods
from cli.terminal.output import show_table
from services.scheduler.in_memory import InMemoryScheduler
from shared.events import Event
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND

ONE_BY_ONE = 1
FEW = 20


class SchedulerFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        pods_per_s: pods placed, by the time of the cycles.
        p50_us, p99_us: a pod's share of its cycle.
        cycle_ms_p99: how long a cycle holds the process.
        fold_us: folding one pod's observation.
        rss_mib: the process at its largest.
        checked: placements that were compared with those of cycles of one pod; None when they were not.
        differ: how many of them differ.
    """

    nodes: int
    pods: int
    kind: str
    placed: int
    pods_per_s: float
    p50_us: float
    p99_us: float
    cycle_ms_p99: float
    fold_us: float
    rss_mib: float
    load_1m: float
    checked: int | None = None
    differ: int | None = None


@click.command()
@click.option("--nodes", "node_count", type=click.IntRange(min=1), default=5_000, show_default=True, help="Nodes.")
@click.option(
    "--pods", "pod_count", type=click.IntRange(min=1), default=20_000, show_default=True, help="Pods to place."
)
@click.option(
    "--kind", type=click.Choice(list(KINDS)), default="equal", show_default=True, help="What the pods are like."
)
@click.option(
    "--profile", default="default", show_default=True, help="`default`, or a KubeSchedulerConfiguration file."
)
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Pods of one cycle.")
@click.option(
    "--check", type=click.IntRange(min=0), default=0, help="Compare so many placements with one-by-one cycles."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def scheduler(
    *, node_count: int, pod_count: int, kind: str, profile: str, batch: int, check: int, as_json: bool
) -> None:
    """Measure the scheduler's engine alone: no servers, every node considered."""
    config = "" if profile == "default" else Path(profile).read_text()
    figures = measure(node_count, pod_count, kind, config, batch)
    if check:
        compared = min(check, pod_count)
        batches, ones = (placements(node_count, compared, kind, config, size) for size in (batch, ONE_BY_ONE))
        differ = sum(ones.get(uid) != node for uid, node in batches.items()) + len(ones.keys() - batches.keys())
        figures = msgspec.structs.replace(figures, checked=compared, differ=differ)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


def measure(node_count: int, pod_count: int, kind: str, config: str, batch: int) -> SchedulerFigures:
    """Place the pods and time the cycles; compiled passes are loaded before."""
    placements(FEW, FEW, kind, config, batch)
    engine = InMemoryScheduler(config)
    engine.observe(nodes(node_count), NOW_NS)
    engine.decide(NOW_NS, batch)  # the nodes are read into the arrays
    waiting = list(pods(kind, 0, pod_count))
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    engine.observe(waiting, NOW_NS)
    fold_s = time.perf_counter() - began
    shares: list[float] = []
    cycles: list[float] = []
    placed = 0
    now_ns = NOW_NS
    while True:
        began = time.perf_counter()
        events = engine.decide(now_ns, batch)
        taken = time.perf_counter() - began
        if not events:
            break
        here = _placed(events)
        cycles.append(taken)
        if not here:  # what is left fits nowhere
            break
        placed += here
        shares += [taken / here] * here
        now_ns += SECOND // 100
    shares.sort()
    cycles.sort()
    total = sum(cycles)
    return SchedulerFigures(
        nodes=node_count,
        pods=pod_count,
        kind=kind,
        placed=placed,
        pods_per_s=round(placed / total, 1) if total else 0.0,
        p50_us=_at(shares, 0.5, 1e6),
        p99_us=_at(shares, 0.99, 1e6),
        cycle_ms_p99=_at(cycles, 0.99, 1e3),
        fold_us=round(fold_s / pod_count * 1e6, 2),
        rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        load_1m=round(os.getloadavg()[0], 2),
    )


def placements(node_count: int, pod_count: int, kind: str, config: str, batch: int) -> dict[str, str]:
    """Where each pod went, by uid, in cycles of `batch` pods."""
    engine = InMemoryScheduler(config)
    engine.observe(nodes(node_count), NOW_NS)
    engine.observe(islice(pods(kind, 0, pod_count), pod_count), NOW_NS)
    chosen: dict[str, str] = {}
    while events := engine.decide(NOW_NS, batch):
        here = {event.pod_uid: event.node for event in events if isinstance(event, PodPlaced)}
        if not here:
            break
        chosen |= here
    return chosen


def _placed(events: tuple[Event, ...]) -> int:
    return sum(isinstance(event, PodPlaced) for event in events)


def _at(ordered: list[float], share: float, scale: float) -> float:
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * scale, 1) if ordered else 0.0
