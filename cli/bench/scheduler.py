"""`koord bench scheduler`: the engine alone, without servers: cycles decided, recorded and folded.

Every node is considered for every class of pods, with all plugins of the profile; CycleDecided and the pods' events are
built and folded back. What is not timed: making the pods, and folding their observation (reported beside it).
"""

import gc
import os
import resource
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from cli.bench.scheduler_workloads import KINDS, MEMORY_MIB, NOW_NS, gpu_devices, node, nodes, pods, refused_pods
from cli.bench.scheduler_workloads import reservations as held_capacity
from cli.terminal.output import show_table
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.events import Event
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from shared.runtime.garbage_collection import collect_seldom

ONE_BY_ONE = 1
FEW = 20
BACKOFF_NS = 60 * SECOND
"""Longer than the back-off of a pod that was refused once."""


class Workload(NamedTuple):
    """The cluster and the pods of a run.

    Attributes:
        kind: one of KINDS.
        numa_nodes: nodes with a NUMA topology policy.
        refused_classes: classes of pods that fit nowhere.
        reservations: Reservations that are available; a fifth of them is for the pods.
        pods_each: equal pods that each holds capacity for.
        config: text of a KubeSchedulerConfiguration; empty for the default profile.
    """

    nodes: int
    pods: int
    kind: str
    numa_nodes: int = 0
    refused_classes: int = 0
    reservations: int = 0
    pods_each: int = 1
    config: str = ""


class SchedulerFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        numa_nodes: nodes with a NUMA topology policy.
        refused_classes: classes of pods that fit nowhere, and are requeued in each cycle since a node changes.
        reservations: Reservations that are available; a fifth of them is for the pods.
        pods_per_reservation: equal pods that each holds capacity for.
        reserved: pods that were placed into a Reservation.
        placed_per_cycle: pods that a cycle places in the mean.
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
    numa_nodes: int
    refused_classes: int
    reservations: int
    pods_per_reservation: int
    placed: int
    reserved: int
    placed_per_cycle: float
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
    "--numa-nodes", type=click.IntRange(min=0), default=0, show_default=True, help="Nodes with a NUMA topology policy."
)
@click.option(
    "--refused-classes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Classes of pods that fit nowhere, requeued in each cycle by a change of a node.",
)
@click.option(
    "--reservations",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Reservations that hold capacity; a fifth of them is for the pods.",
)
@click.option(
    "--pods-per-reservation",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Pods that each Reservation holds capacity for; one for one pod is consumed by it.",
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
    *,
    node_count: int,
    pod_count: int,
    kind: str,
    numa_nodes: int,
    refused_classes: int,
    reservations: int,
    pods_per_reservation: int,
    profile: str,
    batch: int,
    check: int,
    as_json: bool,
) -> None:
    """Measure the scheduler's engine alone: no servers, every node considered."""
    config = "" if profile == "default" else Path(profile).read_text()
    workload = Workload(
        node_count,
        pod_count,
        kind,
        min(numa_nodes, node_count),
        refused_classes,
        reservations,
        pods_per_reservation,
        config,
    )
    figures = measure(workload, batch)
    if check:
        compared = min(check, pod_count)
        fewer = workload._replace(pods=compared, refused_classes=0)
        batches, ones = (placements(fewer, size) for size in (batch, ONE_BY_ONE))
        differ = sum(ones.get(uid) != node for uid, node in batches.items()) + len(ones.keys() - batches.keys())
        figures = msgspec.structs.replace(figures, checked=compared, differ=differ)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


def measure(workload: Workload, batch: int) -> SchedulerFigures:
    """Places the pods and times the cycles; compiled passes are loaded before."""
    few = workload._replace(
        nodes=FEW,
        pods=FEW,
        numa_nodes=min(workload.numa_nodes, FEW),
        refused_classes=0,
        reservations=min(workload.reservations, FEW),
    )
    collect_seldom()  # as in the service
    placements(few, batch)
    engine = InMemoryScheduler(workload.config)
    earlier_ns = NOW_NS - BACKOFF_NS
    engine.observe(nodes(workload.nodes, workload.numa_nodes), earlier_ns)
    engine.observe(_devices_of(workload), earlier_ns)
    engine.observe(held_capacity(workload.reservations, workload.nodes, workload.pods_each), earlier_ns)
    engine.observe(refused_pods(workload.refused_classes), earlier_ns)
    while engine.decide(earlier_ns, batch):  # the nodes are read into the arrays, and the first pods are refused
        earlier_ns += 1
    waiting = list(pods(workload.kind, 0, workload.pods))
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    engine.observe(waiting, NOW_NS)
    fold_s = time.perf_counter() - began
    shares: list[float] = []
    cycles: list[float] = []
    placed = reserved = 0
    now_ns = NOW_NS
    for number in count():
        if workload.refused_classes:
            last = workload.nodes - 1  # its allocatable memory changes, so that pods of all refused classes may fit
            engine.observe(
                [node(last, has_policy=last < workload.numa_nodes, memory_mib=MEMORY_MIB + number + 1)], now_ns
            )
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
        reserved += _reserved(events)
        shares += [taken / here] * here
        now_ns += SECOND // 100
    shares.sort()
    cycles.sort()
    total = sum(cycles)
    return SchedulerFigures(
        nodes=workload.nodes,
        pods=workload.pods,
        kind=workload.kind,
        numa_nodes=workload.numa_nodes,
        refused_classes=workload.refused_classes,
        reservations=workload.reservations,
        pods_per_reservation=workload.pods_each,
        placed=placed,
        reserved=reserved,
        placed_per_cycle=round(placed / len(cycles), 1) if cycles else 0.0,
        pods_per_s=round(placed / total, 1) if total else 0.0,
        p50_us=_at(shares, 0.5, 1e6),
        p99_us=_at(shares, 0.99, 1e6),
        cycle_ms_p99=_at(cycles, 0.99, 1e3),
        fold_us=round(fold_s / workload.pods * 1e6, 2),
        rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        load_1m=round(os.getloadavg()[0], 2),
    )


def placements(workload: Workload, batch: int) -> dict[str, str]:
    """Returns the node of each pod, by uid, in cycles of `batch` pods."""
    engine = InMemoryScheduler(workload.config)
    engine.observe(nodes(workload.nodes, workload.numa_nodes), NOW_NS)
    engine.observe(_devices_of(workload), NOW_NS)
    engine.observe(held_capacity(workload.reservations, workload.nodes, workload.pods_each), NOW_NS)
    engine.observe(pods(workload.kind, 0, workload.pods), NOW_NS)
    chosen: dict[str, str] = {}
    while events := engine.decide(NOW_NS, batch):
        here = {event.pod_uid: event.node for event in events if isinstance(event, PodPlaced)}
        if not here:
            break
        chosen |= here
    return chosen


def _devices_of(workload: Workload) -> Iterator[Event]:
    return gpu_devices(workload.nodes if workload.kind in ("gpu", "gpu-joint") else 0)


def _placed(events: tuple[Event, ...]) -> int:
    return sum(isinstance(event, PodPlaced) for event in events)


def _reserved(events: tuple[Event, ...]) -> int:
    return sum(isinstance(event, PodPlaced) and RESERVATION_ALLOCATED in event.annotations for event in events)


def _at(ordered: list[float], share: float, scale: float) -> float:
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * scale, 1) if ordered else 0.0
