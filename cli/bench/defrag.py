"""`koord bench defrag`: the search for the moves that admit a waiting unit, in the scheduler's engine without servers.

Every node has pods of one size and too little capacity left for the waiting ones. The search is that of the scheduler's
answer to the plugin Defragment, which gives it up after `LONGEST_SEARCH_S`; here it goes on to its end.
"""

import gc
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import click
import msgspec

from cli.bench.scheduler_workloads import CPUS, GPUS, NOW_NS, gpu_devices, nodes
from cli.terminal.output import show_table
from services.scheduler.extender_server.answer_moves_for_waiting_unit import MOST_PODS, moves_for_unit
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from services.scheduler.state.watched_api_resources import POD_GROUPS
from shared.domain.gang import POD_GROUP_LABEL
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest, MovesForUnitResponse
from shared.events.cluster import ObjectObserved, PodObserved
from shared.kube.instants import instant_text
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.runtime.garbage_collection import collect_seldom

MOST_MOVES = 64
PODS_PER_WORKLOAD = 20
UNIT = "bench/unit"
GPU = "koordinator.sh/gpu"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
BOTH_HALVES = 2


class Scene(NamedTuple):
    """A fleet, and a unit that waits.

    Attributes:
        pods: on each node. cpu_milli: of each; what they leave free is `free_milli` of 32 cores.
        size: pods of the unit. waits_milli: of each.
        gpus: whole GPUs that each pod of the unit requests; then half of each second GPU of a node is in use.
    """

    pods: int
    cpu_milli: int
    size: int
    waits_milli: int
    gpus: int = 0


SCENES = {
    "pod": Scene(pods=20, cpu_milli=1_500, size=1, waits_milli=3_000),
    "gang": Scene(pods=20, cpu_milli=1_500, size=MOST_PODS, waits_milli=6_000),
    "gpu": Scene(pods=4, cpu_milli=1_500, size=1, waits_milli=1_000, gpus=GPUS),
    "none": Scene(pods=31, cpu_milli=1_030, size=1, waits_milli=6_000),
}
"""One move; three moves for each pod of a gang; four shares of GPUs; and pods that fit on no other node."""


class SearchFigures(msgspec.Struct, frozen=True):
    """Figures of one scene.

    Attributes:
        search_ms, cpu_ms: the search, by the clock and on a cpu.
        slice_ms: the longest piece of it, between which other tasks of the process run, by the clock.
        moves: of the plan. problem: why there is none.
    """

    search_ms: float
    cpu_ms: float
    slice_ms: float
    moves: int
    problem: str


class DefragFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`."""

    nodes: int
    scenes: dict[str, SearchFigures]
    load_1m: float


@click.command()
@click.option("--nodes", "node_count", type=click.IntRange(min=2), default=1_000, show_default=True, help="Nodes.")
@click.option("--scene", type=click.Choice(list(SCENES)), default=None, help="One scene alone.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def defrag(*, node_count: int, scene: str | None, as_json: bool) -> None:
    """Measure the search for the moves that admit a waiting pod or gang: no servers."""
    collect_seldom()  # as in the service
    chosen = [scene] if scene else list(SCENES)
    figures = DefragFigures(
        node_count, {name: measure(SCENES[name], node_count) for name in chosen}, round(os.getloadavg()[0], 2)
    )
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        rows = [(name, *map(str, msgspec.structs.astuple(found))) for name, found in figures.scenes.items()]
        show_table(("scene", "ms", "cpu ms", "slice ms", "moves", "problem"), rows)


def measure(scene: Scene, node_count: int) -> SearchFigures:
    """Builds the fleet, and searches once; compiled passes are loaded before, on a few nodes."""
    _search(_engine(scene, 2))
    engine = _engine(scene, node_count)
    gc.collect()
    gc.freeze()
    began, on_cpu = time.perf_counter(), time.process_time()
    found, longest_s = _search(engine)
    return SearchFigures(
        search_ms=round((time.perf_counter() - began) * 1000, 1),
        cpu_ms=round((time.process_time() - on_cpu) * 1000, 1),
        slice_ms=round(longest_s * 1000, 1),
        moves=len(found.moves),
        problem=found.problem,
    )


def _search(engine: InMemoryScheduler) -> tuple[MovesForUnitResponse, float]:
    """Returns the answer, and the seconds of its longest slice."""
    search = moves_for_unit(engine.cache, MovesForUnitRequest(UNIT, MOST_MOVES), NOW_NS)
    longest_s = 0.0
    while True:
        began = time.perf_counter()
        try:
            next(search)
        except StopIteration as ended:
            found: MovesForUnitResponse = ended.value
            return found, max(longest_s, time.perf_counter() - began)
        longest_s = max(longest_s, time.perf_counter() - began)


def _engine(scene: Scene, node_count: int) -> InMemoryScheduler:
    """Returns a scheduler that has refused the unit."""
    engine = InMemoryScheduler()
    engine.observe(nodes(node_count), NOW_NS)
    engine.observe(gpu_devices(node_count if scene.gpus else 0), NOW_NS)
    engine.observe(_running(scene, node_count), NOW_NS)
    engine.observe(_unit(scene), NOW_NS)
    while engine.decide(NOW_NS, MOST_PODS):
        pass
    return engine


def _running(scene: Scene, node_count: int) -> Iterator[PodObserved]:
    for number in range(node_count * scene.pods):
        row, place = divmod(number, scene.pods)
        workload = f"web-{number % max(node_count * scene.pods // PODS_PER_WORKLOAD, 1)}"
        owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=workload, uid=workload, controller=True)
        notes, more = {}, {}
        if scene.gpus:
            share = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
            notes = {ALLOCATED: _allocated(place * BOTH_HALVES, {**share, "koordinator.sh/gpu-memory": "40Gi"})}
            more = {GPU: "50"}
        yield _pod(f"web-{number:07}", scene.cpu_milli, more, owner_references=(owner,), annotations=notes,
            labels={"app": workload},
                   on=f"node-{row:06}")  # fmt: skip


def _allocated(minor: int, resources: dict[str, str]) -> str:
    return msgspec.json.encode({"gpu": [{"minor": minor, "resources": resources}]}).decode()


def _unit(scene: Scene) -> Iterator[ObjectObserved | PodObserved]:
    metadata = {"name": "unit", "namespace": "bench"}
    body = {"metadata": metadata, "spec": {"minMember": scene.size}}
    yield ObjectObserved(resource=POD_GROUPS, name=UNIT, uid="unit", object=body)
    more = {GPU: str(100 * scene.gpus)} if scene.gpus else {}
    for number in range(scene.size):
        yield _pod(f"unit-{number}", scene.waits_milli, more, labels={POD_GROUP_LABEL: "unit"})


def _pod(name: str, cpu_milli: int, more: dict[str, str], on: str = "", **metadata: object) -> PodObserved:
    requests = ResourceRequirements(requests={"cpu": f"{cpu_milli}m", "memory": "512Mi", **more})
    pod = Pod(
        metadata=Metadata(
            name=name,
            namespace="bench",
            uid=name,
            creation_timestamp=instant_text(NOW_NS),
            **metadata,  # type: ignore[arg-type]
        ),
        spec=PodSpec(
            node_name=on, scheduler_name="koord-scheduler", containers=(Container(name="main", resources=requests),)
        ),
        status=PodStatus(phase="Running" if on else "Pending", qos_class="Burstable"),
    )
    return PodObserved(pod=f"bench/{name}", pod_uid=name, object=pod)


assert all(scene.cpu_milli * scene.pods <= CPUS * 1000 for scene in SCENES.values()), "pods run where they fit"
