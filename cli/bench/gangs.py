"""`koord bench gangs`: the speed of the engine without servers, for gangs that are placed and gangs that fit nowhere.

Every node is evaluated and scored for every gang, and so is every domain of the network that could hold it: gangs have
to be placed in one domain. A gang is a class of pods of its own, as its label tells it from
others. Timed are whole cycles: changes are settled, decided, recorded as events and folded back. Not timed is the
making of pods, and the fold of their observation.
"""

import gc
import os
import time
from collections.abc import Iterator, Sequence
from statistics import median

import click
import msgspec

from cli.bench.scheduler_workloads import CPUS, NOW_NS, gang_events, network_topology, nodes
from cli.terminal.output import show_table
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.events import Event
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from shared.runtime.garbage_collection import collect_seldom

LARGE = 1000
REFUSED_SIZE = 64
REPEATS = 5
_AWARE = DEFAULT_PROFILE.replace(
    "  pluginConfig:\n", "  pluginConfig:\n  - {name: Coscheduling, args: {awareNetworkTopology: true}}\n", 1
)
PODS_OF_A_SIZE = 4096
"""Pods that are placed in gangs of each size; at least one gang."""


class GangFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        racks, tiers: of the network. A gang has to be placed in one rack; one of 64 or more pods in a domain of the
            outermost tier.
        pods_per_s: of the size with the lowest rate.
        by_size: size -> pods placed in a second, in cycles of many gangs.
        gang_1000_ms: a cycle that places a gang of 1,000 alone, the median of five.
        refused_ms: a cycle that refuses a gang of 64 that fits nowhere, the median of five.
    """

    nodes: int
    racks: int
    tiers: int
    pods_per_s: float
    by_size: dict[int, float]
    gang_1000_ms: float
    refused_ms: float
    load_1m: float


def _sizes(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise click.BadParameter(f"{text!r} is no list of sizes; give whole numbers above 0, such as 4,16,64,1000")
    return sizes


@click.command()
@click.option("--nodes", "node_count", type=click.IntRange(min=1), default=5_000, show_default=True, help="Nodes.")
@click.option("--racks", type=click.IntRange(min=1), default=50, show_default=True, help="Racks in the nodes' labels.")
@click.option(
    "--tiers", type=click.IntRange(1, 9), default=3, show_default=True, help="Layers of the network in their labels."
)
@click.option(
    "--sizes", callback=_sizes, default="4,16,64,1000", show_default=True, help="Sizes of gangs, separated by commas."
)
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Gangs of one cycle.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def gangs(*, node_count: int, racks: int, tiers: int, sizes: tuple[int, ...], batch: int, as_json: bool) -> None:
    """Measure gangs in the scheduler's engine alone: no servers, every node considered and scored."""
    figures = measure(node_count, racks, tiers, sizes, batch)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


def measure(node_count: int, racks: int, tiers: int, sizes: Sequence[int], batch: int) -> GangFigures:
    """Places gangs of each size, gangs of 1,000, and refuses gangs; compiled passes are loaded before."""
    collect_seldom()  # as in the service
    for count in (20, node_count):
        engine = InMemoryScheduler(_AWARE)
        engine.observe(nodes(count, racks=racks, tiers=tiers), NOW_NS)
        engine.observe([network_topology(tiers)], NOW_NS)
        bench = _Bench(engine, batch, tiers)
        bench.run(2, 4)
    gc.collect()
    gc.freeze()
    by_size = {size: bench.rate(size, max(PODS_OF_A_SIZE // size, 1)) for size in sizes}
    large = [bench.run(1, LARGE)[1] for _ in range(REPEATS)]
    refused = [bench.run(1, REFUSED_SIZE, cpu_milli=2 * CPUS * 1000)[1] for _ in range(REPEATS)]
    return GangFigures(
        nodes=node_count,
        racks=racks,
        tiers=tiers,
        pods_per_s=min(by_size.values()),
        by_size=by_size,
        gang_1000_ms=round(median(large) * 1000, 2),
        refused_ms=round(median(refused) * 1000, 2),
        load_1m=round(os.getloadavg()[0], 2),
    )


class _Bench:
    """An engine with nodes, to which gangs come one after the other."""

    def __init__(self, engine: InMemoryScheduler, batch: int, tiers: int) -> None:
        self._engine = engine
        self._tiers = tiers
        self._batch = batch
        self._number = 0
        self._now_ns = NOW_NS

    def run(self, count: int, size: int, cpu_milli: int = 500) -> tuple[int, float]:
        """Observes gangs, and runs cycles until each has been decided about; returns the pods placed, and the time of
        the cycles in seconds.
        """
        self._engine.observe(self._events(count, size, cpu_milli), self._now_ns)
        placed, taken = 0, 0.0
        for decided in self._cycles():
            events, seconds = decided
            placed += sum(isinstance(event, PodPlaced) for event in events)
            taken += seconds
        return placed, taken

    def rate(self, size: int, count: int) -> float:
        """Returns the pods placed in a second in gangs of a size."""
        placed, taken = self.run(count, size)
        return round(placed / taken, 1) if taken else 0.0

    def _cycles(self) -> Iterator[tuple[tuple[Event, ...], float]]:
        while True:
            began = time.perf_counter()
            events = self._engine.decide(self._now_ns, self._batch)
            if not events:
                return
            yield events, time.perf_counter() - began
            self._now_ns += SECOND // 1000

    def _events(self, count: int, size: int, cpu_milli: int) -> Iterator[Event]:
        layer = f"tier-{self._tiers - 1 if size >= REFUSED_SIZE else 0}"
        for _ in range(count):
            self._number += 1
            yield from gang_events(f"gang-{self._number:05}", size, cpu_milli, layer)
