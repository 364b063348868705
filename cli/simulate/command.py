"""The `koord simulate` command."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cli.packing.ceiling import NoSolver, is_available
from cli.simulate import kube_objects, openb_trace, reservations, trace_figures
from cli.simulate.policies import GPU_MILLI, PACKING, POLICIES, packing_text, policy_text
from cli.simulate.trace_figures import Fragmentation
from cli.terminal.output import Format, show, show_table
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.domain.component_config import BadConfig
from shared.domain.pod_requests import pod_requests, whole
from shared.errors import KoordError
from shared.events import Event
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.events.scheduling import PlacementReserved, PodPlaced, PodUnschedulable
from shared.kube.instants import SECOND
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import amounts
from shared.kube.resource_names import DEVICES, NETWORK_TOPOLOGIES, POD_GROUPS
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED
from shared.runtime.garbage_collection import collect_seldom

START_NS = 1_780_000_000 * SECOND
ROUND_NS = 60 * SECOND
"""Between rounds; longer than a pod waits after it was refused."""
BATCH = 256
SCHEDULER = "koord-scheduler"


class Simulated(msgspec.Struct, frozen=True):
    """Result of `--json`.

    Attributes:
        placed, rejected: pods.
        gpu_allocated_percent: GPU thousandths of placed pods, of all the nodes'; None without GPUs.
        cpu_allocated_percent, memory_allocated_percent: likewise.
        reasons: code -> pods that were rejected for it.
        reservations_held, reservations_waiting: Reservations that a node holds or held, and the others; None without
            any.
        seconds: of the engine.
        allocation_100_percent, allocation_130_percent: GPUs of placed pods, of all the nodes', once pods worth so many
            percent of these had arrived; None where fewer arrive.
        gpuless_rejected: rejected pods of a trace that request no GPU.
        fragmentation_percent: free GPUs that a pod of the trace cannot use at the end, of all, a mean over pods that
            request some; fragmentation: the same by request. None where no devices are allocated.
        ceiling_percent: what pods could have at most (cli/packing/ceiling.py); None without `--ceiling`, or where the
            pods that have to be placed cannot all be. gap_points: from `allocation_130_percent` to it.
    """

    placed: int
    rejected: int
    gpu_allocated_percent: float | None
    cpu_allocated_percent: float
    memory_allocated_percent: float
    reasons: dict[str, int]
    seconds: float
    reservations_held: int | None = None
    reservations_waiting: int | None = None
    allocation_100_percent: float | None = None
    allocation_130_percent: float | None = None
    gpuless_rejected: int | None = None
    fragmentation_percent: float | None = None
    fragmentation: tuple[Fragmentation, ...] | None = None
    ceiling_percent: float | None = None
    gap_points: float | None = None


class _Minor(msgspec.Struct):
    minor: int = 0


class _Used(msgspec.Struct):
    name: str = ""


class Placement(msgspec.Struct, frozen=True):
    """One pod's outcome, as `--placements` prints it, one a line.

    Attributes:
        reservation: the Reservation that it uses; empty for none.
        devices: its devices on the node, as `gpu 0, rdma 1`; absent without any.
    """

    pod: str
    node: str = ""
    reservation: str = ""
    devices: str | msgspec.UnsetType = msgspec.UNSET
    code: str = ""
    message: str = ""


@click.command()
@click.option("--nodes", "nodes_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
              help="A trace's nodes (.csv), or Node objects (YAML or JSON), with Devices and a ClusterNetworkTopology.")  # fmt: skip
@click.option("--pods", "pods_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
              help="A trace's pods (.csv), or objects: pods, workloads, which stand for their pods, PodGroups and Reservations.")  # fmt: skip
@click.option("--policy", default="default", show_default=True,
              help=f"{', '.join((*POLICIES, *PACKING))}, or a KubeSchedulerConfiguration file.")  # fmt: skip
@click.option("--arrive-percent", type=click.IntRange(min=1),
              help="Draw the trace's pods at random until their GPU requests reach this share of the nodes'.")  # fmt: skip
@click.option("--ceiling", is_flag=True,
              help="With --arrive-percent: compute what pods could have at most. Needs koordstream[ceiling].")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="For the draw.")
@click.option(
    "--backfill", is_flag=True, help="Let pods pass a waiting gang only where its planned start does not move."
)
@click.option("--placements", is_flag=True, help="Print each pod's outcome, one JSON object a line, before the result.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True,
              help="How to print it.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as -o json, on one line.")
def simulate(
    *,
    nodes_file: Path,
    pods_file: Path,
    policy: str,
    arrive_percent: int | None,
    ceiling: bool,
    seed: int,
    backfill: bool,
    placements: bool,
    output: Format,
    as_json: bool,
) -> None:
    """Place a list of pods on a list of nodes, in memory.

    Pods that are bound in their file hold their nodes; Reservations are placed first, the other pods in the order of
    the file. No pod ever leaves.
    """
    config = policy_text(policy)
    _check_ceiling(ceiling=ceiling, arrive_percent=arrive_percent)
    reserved: list[dict[str, Any]] = []
    pod_groups: list[dict[str, Any]] = []
    topologies: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    if nodes_file.suffix == ".csv":
        nodes = openb_trace.read_nodes(nodes_file)
    else:
        nodes, topologies = kube_objects.read_nodes(nodes_file), kube_objects.read_network_topologies(nodes_file)
        devices = kube_objects.read_devices(nodes_file)
    if pods_file.suffix == ".csv":
        pods = openb_trace.read_pods(pods_file, SCHEDULER)
        if policy in PACKING:
            config = packing_text(policy, openb_trace.MODEL_LABEL, openb_trace.workload_of(pods))
        if arrive_percent:
            capacity = sum(int((node.status.allocatable or {}).get(GPU_MILLI, "0")) for node in nodes)
            pods = list(openb_trace.arriving(pods, capacity * arrive_percent // 100, seed))
        if policy in PACKING:
            nodes, pods, devices = openb_trace.with_devices(nodes, pods)
    elif arrive_percent:
        raise KoordError("--arrive-percent draws from a trace; give --pods FILE.csv")
    else:
        pods = kube_objects.read_pods(pods_file, nodes)
        reserved = kube_objects.read_reservations(pods_file)
        pod_groups = kube_objects.read_pod_groups(pods_file)
        topologies += kube_objects.read_network_topologies(pods_file)
        devices += kube_objects.read_devices(pods_file)
    collect_seldom()
    try:
        engine = InMemoryScheduler(config, policy, backfill=backfill)
    except BadConfig as error:
        raise KoordError(f"policy {policy}: {error}") from error
    engine.observe(map(_network_topology, topologies), START_NS)
    engine.observe(map(_device, devices), START_NS)
    began = time.perf_counter()
    outcomes = run(engine, nodes, [_for_a_profile(pod, engine.schedulers) for pod in pods], reserved, pod_groups)
    seconds = time.perf_counter() - began
    held = reservations.held(engine)
    if placements:
        for outcome in (*held, *outcomes):
            click.echo(msgspec.json.encode(outcome))
    result = summary(nodes, pods, outcomes, seconds)
    if reserved:
        count = sum(bool(each.node) for each in held)
        result = msgspec.structs.replace(result, reservations_held=count, reservations_waiting=len(held) - count)
    if arrive_percent:
        result = _with_allocations(result, nodes, pods, outcomes, with_ceiling=ceiling)
    _print(result, "json-line" if as_json else output)


def _check_ceiling(*, ceiling: bool, arrive_percent: int | None) -> None:
    if ceiling and not arrive_percent:
        raise click.UsageError("--ceiling goes with --arrive-percent: it depends on the pods that arrive")
    if ceiling and not is_available():
        raise NoSolver


def _print(result: Simulated, output: str) -> None:
    if output == "json-line":
        click.echo(msgspec.json.encode(result))
    elif output != "table":
        show(result, output)
    else:
        show_table(("figure", "value"), list(_lines(result)))
        if result.rejected:
            click.echo("--placements prints why each pod was rejected", err=True)


def _lines(result: Simulated) -> Iterator[tuple[str, str]]:
    """Yields the lines of the table; GPUs only where the nodes have any."""
    yield "pods placed", str(result.placed)
    yield "pods rejected", str(result.rejected)
    for code, pods in result.reasons.items():
        yield f"  {code}", str(pods)
    if result.reservations_held is not None:
        yield "Reservations held", str(result.reservations_held)
        yield "Reservations waiting", str(result.reservations_waiting)
    for name, percent in (
        ("GPUs requested", result.gpu_allocated_percent),
        ("  at 100 % arrived", result.allocation_100_percent),
        ("  at 130 % arrived", result.allocation_130_percent),
        ("  ceiling", result.ceiling_percent),
        ("GPUs without a use", result.fragmentation_percent),
        ("cpu requested", result.cpu_allocated_percent),
        ("memory requested", result.memory_allocated_percent),
    ):
        if percent is not None:
            yield name, f"{percent:g} %"
        if name == "GPUs without a use":
            yield from trace_figures.fragmentation_lines(result.fragmentation or ())
    yield "time of the engine", f"{result.seconds:g} s"


def run(
    engine: InMemoryScheduler,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    reserved: Sequence[Mapping[str, Any]] = (),
    pod_groups: Sequence[Mapping[str, Any]] = (),
) -> list[Placement]:
    """Places the Reservations, then the waiting pods in their order; returns the outcome of each pod."""
    engine.observe(map(_pod_group, pod_groups), START_NS)
    engine.observe((NodeObserved(node=node.metadata.name, object=node) for node in nodes), START_NS)
    engine.observe((_observed(pod) for pod in pods if pod.spec.node_name), START_NS)
    waiting = {pod.metadata.uid: pod for pod in pods if not pod.spec.node_name}
    outcomes: dict[str, Placement] = {}
    now_ns = START_NS
    if reserved:
        reservations.observe(engine, reserved, now_ns)
        now_ns = _decide(engine, {}, outcomes, now_ns)
    engine.observe((_observed(pod) for pod in waiting.values()), now_ns)
    _decide(engine, waiting, outcomes, now_ns)
    return [outcomes.get(uid) or _not_tried(engine, pod) for uid, pod in waiting.items()]


def _not_tried(engine: InMemoryScheduler, pod: Pod) -> Placement:
    """Returns the outcome of a pod that no cycle tried: the reason for which its gang is kept from the queue, if any."""
    record = engine.view.pods[pod.metadata.uid]
    held_back = engine.cache.queue.grouped(record).membership.held_back
    if held_back is None:
        return Placement(pod=pod.metadata.key, code="NotAttempted")
    texts = engine.cache.profiles[pod.spec.scheduler_name].texts
    return Placement(pod=pod.metadata.key, code=held_back.code, message=texts.text(held_back.code, held_back.detail))


def _pod_group(plain: Mapping[str, Any]) -> ObjectObserved:
    metadata = plain["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    return ObjectObserved(resource=POD_GROUPS, name=name, uid=name, object=dict(plain))


def _network_topology(plain: Mapping[str, Any]) -> ObjectObserved:
    name = plain["metadata"]["name"]
    return ObjectObserved(resource=NETWORK_TOPOLOGIES, name=name, uid=name, object=dict(plain))


def _device(plain: Mapping[str, Any]) -> ObjectObserved:
    name = plain["metadata"]["name"]
    return ObjectObserved(resource=DEVICES, name=name, uid=f"device-{name}", object=dict(plain))


def _devices(annotation: str | None) -> str | msgspec.UnsetType:
    """Returns the devices of a pod in words: `gpu 0, gpu 1, rdma 0`."""
    if not annotation:
        return msgspec.UNSET
    by_type = msgspec.json.decode(annotation, type=dict[str, list[_Minor]])
    return ", ".join(f"{type_} {device.minor}" for type_, listed in by_type.items() for device in listed)


def _decide(engine: InMemoryScheduler, waiting: Mapping[str, Pod], outcomes: dict[str, Placement], now_ns: int) -> int:
    """Decides cycles until nothing changes any more, and notes the outcomes; returns the time then."""
    while True:
        while events := engine.decide(now_ns, BATCH):
            outcomes |= {uid: outcome for event in events for uid, outcome in _outcome(event)}
            engine.observe(_bound(events, waiting), now_ns)
        if not reservations.carry_out(engine, now_ns):
            return now_ns
        now_ns += ROUND_NS


def _observed(pod: Pod) -> PodObserved:
    return PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod)


def _bound(events: Iterable[Event], waiting: Mapping[str, Pod]) -> Iterator[PodObserved]:
    """Yields the placed pods that use a Reservation as they are once they are bound: these consume it."""
    for event in events:
        if isinstance(event, PodPlaced) and RESERVATION_ALLOCATED in event.annotations and event.pod_uid in waiting:
            pod = waiting[event.pod_uid]
            notes = {**(pod.metadata.annotations or {}), **event.annotations}
            metadata = msgspec.structs.replace(pod.metadata, annotations=notes)
            spec = msgspec.structs.replace(pod.spec, node_name=event.node)
            yield _observed(msgspec.structs.replace(pod, metadata=metadata, spec=spec))


def summary(nodes: Sequence[Node], pods: Sequence[Pod], outcomes: Sequence[Placement], seconds: float) -> Simulated:
    """The result in figures."""
    placed = {outcome.pod for outcome in outcomes if outcome.node}
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for node in nodes:
        total.update(amounts(node.status.allocatable or {}))
    for pod in pods:
        if pod.spec.node_name or pod.metadata.key in placed:
            used.update(whole(pod_requests(pod)))
    return Simulated(
        placed=len(placed),
        rejected=len(outcomes) - len(placed),
        gpu_allocated_percent=_percent(used, total, GPU_MILLI) if total[GPU_MILLI] else None,
        cpu_allocated_percent=_percent(used, total, "cpu"),
        memory_allocated_percent=_percent(used, total, "memory"),
        reasons=dict(Counter(outcome.code for outcome in outcomes if not outcome.node).most_common()),
        seconds=round(seconds, 3),
    )


def _with_allocations(
    result: Simulated,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    outcomes: Sequence[Placement],
    *,
    with_ceiling: bool,
) -> Simulated:
    """Adds the figures of a trace of which pods arrive one after the other."""
    capacity = sum(int((node.status.allocatable or {}).get(GPU_MILLI, "0")) for node in nodes)
    placed = {outcome.pod: outcome.node for outcome in outcomes if outcome.node}
    found = trace_figures.allocations(capacity, pods, placed)
    result = msgspec.structs.replace(
        result,
        allocation_100_percent=found.at_100,
        allocation_130_percent=found.at_130,
        gpuless_rejected=found.gpuless_rejected,
    )
    minors = {each.pod: _minors(each.devices) for each in outcomes if each.devices is not msgspec.UNSET}
    if minors:
        by_request = trace_figures.fragmentation(nodes, pods, placed, minors)
        mean = sum(each.pods * each.fragmented_percent for each in by_request) / sum(each.pods for each in by_request)
        result = msgspec.structs.replace(result, fragmentation_percent=round(mean, 3), fragmentation=tuple(by_request))
    if with_ceiling and (most := trace_figures.ceiling(nodes, pods)) is not None:
        gap = None if found.at_130 is None else round(most - found.at_130, 2)
        result = msgspec.structs.replace(result, ceiling_percent=most, gap_points=gap)
    return result


def _minors(devices: str) -> list[int]:
    return [int(each.partition(" ")[2]) for each in devices.split(", ")]


def _percent(used: Mapping[str, int], total: Mapping[str, int], resource: str) -> float:
    return round(100 * used.get(resource, 0) / total[resource], 2) if total.get(resource) else 0.0


def _outcome(event: Event) -> list[tuple[str, Placement]]:
    match event:
        case PodPlaced():
            used = event.annotations.get(RESERVATION_ALLOCATED)
            name = msgspec.json.decode(used, type=_Used).name if used else ""
            devices = _devices(event.annotations.get(DEVICE_ALLOCATED))
            return [(event.pod_uid, Placement(pod=event.pod, node=event.node, reservation=name, devices=devices))]
        case PlacementReserved(kind="Pod"):
            until = f"the other pods of {event.unit} have one" if event.waits_for == "unit" else "its volumes are bound"
            message = f"node {event.node} is held for it until {until}"
            return [(event.holder_uid, Placement(pod=event.holder, code="NodeHeld", message=message))]
        case PodUnschedulable():
            return [(event.pod_uid, Placement(pod=event.pod, code=event.code, message=event.message))]
        case _:
            return []


def _for_a_profile(pod: Pod, schedulers: Sequence[str]) -> Pod:
    """Returns the pod, with the first profile where its scheduler is not in the configuration."""
    if pod.spec.scheduler_name in schedulers:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=schedulers[0]))
