"""`koord bench memory`: bytes of each service's State for one pod of a running cluster.

Every service folds the same observations, each decoded from its stored text as a follower decodes it. A State without
pods is folded as well, and the difference is what the pods cost. Allocations are counted, not the process's pages, so
that the figure does not depend on what ran before.
"""

import gc
import os
import tracemalloc
from collections.abc import Iterable, Sequence

import click
import msgspec

from cli.bench.takeover_cluster import fleet
from cli.service_list import load
from cli.terminal.output import show_table
from shared.events import Event, RecordedEvent
from shared.events.cluster import PodObserved
from shared.kube.instants import SECOND

NOW_NS = 1_780_000_000 * SECOND
SERVICES = ("scheduler", "quota-ledger", "slo-controller", "gateway")
"""Services whose State grows with the number of pods."""


class MemoryFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`: bytes that Python and NumPy hold for a State, divided by the number of pods."""

    nodes: int
    pods: int
    scheduler_bytes_per_pod: int
    quota_ledger_bytes_per_pod: int
    slo_controller_bytes_per_pod: int
    gateway_bytes_per_pod: int
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=10_000, show_default=True, help="Nodes.")
@click.option("--pods", type=click.IntRange(min=1), default=200_000, show_default=True, help="Pods that run on them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def memory(*, nodes: int, pods: int, as_json: bool) -> None:
    """Measure the memory of each service's State for one pod."""
    costs = {f"{name.replace('-', '_')}_bytes_per_pod": bytes_per_pod(name, nodes, pods) for name in SERVICES}
    figures = MemoryFigures(nodes=nodes, pods=pods, load_1m=round(os.getloadavg()[0], 2), **costs)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


def bytes_per_pod(service: str, nodes: int, pods: int) -> int:
    """Returns the bytes of the service's State for one pod.

    Args:
        service: its name in the manifest.
    """
    with_pods = bytes_of_state(service, fleet(nodes, pods, NOW_NS))
    without = bytes_of_state(service, _without_pods(fleet(nodes, 0, NOW_NS)))
    return round((with_pods - without) / pods)


def _without_pods(events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if not isinstance(event, PodObserved))


def bytes_of_state(name: str, events: Iterable[Event]) -> int:
    """Returns the bytes that a State takes once it has folded the events."""
    service = load(name)
    kinds: Sequence[type[Event]] = service.follows["cluster"]
    gc.collect()
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        state = service.new_state()
        for seq, event in enumerate(events, 1):
            if type(event) not in kinds:
                continue
            stored = msgspec.json.encode(event)
            decoded = msgspec.json.decode(stored, type=type(event))
            state.apply(RecordedEvent("cluster", seq, decoded, NOW_NS))
        state.encode()  # reads the observations that wait to be read, as each snapshot does
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
