"""`koord bench slo`: the SLO controller's engine alone: every node of a fleet decided anew, in one process without
servers.

The clock counts what the service does between reading its logs and appending: strategies, sums over pods, formulas,
comparison with the previous decision, and the events. Folding is measured by itself.
"""

import gc
import json
import os
import resource
import time
from typing import NamedTuple

import click
import msgspec

from cli.terminal.output import show_table
from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.decide import decide_config, decide_nodes
from services.slo_controller.service_manifest import CONFIG_MAP
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from shared.admission.slo_config.document_validation import COLOCATION
from shared.events import Draft, Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.events.intents import FieldsDesired
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements

BEGAN = 1_780_000_000 * SECOND
GIB = 1 << 30
CLASSES = ("koord-prod", "koord-prod", "koord-mid", "koord-batch")


class SloFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        Seconds of this process on a cpu, so that other load on the machine does not count; `recompute_wall_s` is
        recompute_s by the clock. first_s: every node from nothing, and its first write. config_s: a new reclaim
        percentage; every node is calculated, compared and written. recompute_s: every node calculated and compared once
        more, with nothing to write. reports_s: a new report of every node, within the threshold: sums, formulas,
        comparison, no write. writes_config, writes_reports: desired states that the gateway would have to write then.
        fold_reports_per_s, fold_pods_per_s: events folded. rss_mib: the process at its largest.
    """

    nodes: int
    pods: int
    first_s: float
    config_s: float
    recompute_s: float
    recompute_wall_s: float
    reports_s: float
    writes_config: int
    writes_reports: int
    fold_reports_per_s: float
    fold_pods_per_s: float
    rss_mib: float
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=10_000, show_default=True, help="Nodes.")
@click.option("--pods-per-node", type=click.IntRange(min=0), default=30, show_default=True, help="Pods on each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def slo(*, nodes: int, pods_per_node: int, as_json: bool) -> None:
    """Measure the SLO controller's engine alone: no servers."""
    figures = measure(nodes, pods_per_node)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), msgspec.structs.asdict(figures).items())


def measure(nodes: int, pods_per_node: int) -> SloFigures:
    """Builds a fleet, and decides all of it four times."""
    fleet = Fleet()
    fleet.configure(65)
    names = [f"node-{number:05}" for number in range(nodes)]
    for name in names:
        fleet.fold("cluster", _node(name))
    started = time.perf_counter()
    for name in names:
        for number in range(pods_per_node):
            fleet.fold("cluster", _pod(name, number))
    pods_s = time.perf_counter() - started
    reports_s = fleet.report(names, pods_per_node, at_s=60, percent=50)
    gc.collect()
    gc.freeze()
    first, _ = fleet.decide(names, at_s=61)
    fleet.configure(80)
    config, writes_config = fleet.decide(names, at_s=62)
    recompute, _ = fleet.decide(names, at_s=63)
    fleet.report(names, pods_per_node, at_s=120, percent=51)
    again, writes_reports = fleet.decide(names, at_s=121)
    return SloFigures(
        nodes=nodes,
        pods=nodes * pods_per_node,
        first_s=round(first.cpu_s, 3),
        config_s=round(config.cpu_s, 3),
        recompute_s=round(recompute.cpu_s, 3),
        recompute_wall_s=round(recompute.wall_s, 3),
        reports_s=round(again.cpu_s, 3),
        writes_config=writes_config,
        writes_reports=writes_reports,
        fold_reports_per_s=round(nodes / reports_s),
        fold_pods_per_s=round(nodes * pods_per_node / pods_s),
        rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        load_1m=round(os.getloadavg()[0], 2),
    )


class Took(NamedTuple):
    """Durations: cpu time and wall time."""

    cpu_s: float
    wall_s: float


class Fleet:
    """A State, and the logs that it is folded from."""

    def __init__(self) -> None:
        self.state = SloState()
        self.settings = SloSettings(node_slos=False)

    def fold(self, context: str, event: Event) -> None:
        """Folds an event."""
        seq = self.state.positions.get(context, 0) + 1
        self.state.apply(RecordedEvent(context=context, seq=seq, event=event, at_ns=BEGAN))

    def configure(self, percent: int) -> None:
        """Applies a configuration."""
        data = {COLOCATION: json.dumps({"enable": True, "cpuReclaimThresholdPercent": percent})}
        self.fold("cluster", ObjectObserved(resource="configmaps", name=CONFIG_MAP, uid="c", object={"data": data}))
        for draft in decide_config(self.state):
            self.fold("slo", draft.event)

    def report(self, names: list[str], pods: int, *, at_s: int, percent: int) -> float:
        """Folds a report of each node. Returns the seconds of the folds."""
        events = [_report(name, pods, at_s, percent) for name in names]
        started = time.perf_counter()
        for event in events:
            self.fold("metrics-0", event)
        return time.perf_counter() - started

    def decide(self, names: list[str], *, at_s: int) -> tuple[Took, int]:
        """Decides every node, and folds the events.

        Returns the duration of the decision, and the number of desired writes.
        """
        started, began = time.process_time(), time.perf_counter()
        drafts: list[Draft] = decide_nodes(
            self.state, ActiveConfig(self.state.texts), names, self.settings, BEGAN + at_s * SECOND
        )
        took = Took(time.process_time() - started, time.perf_counter() - began)
        for draft in drafts:
            self.fold("slo", draft.event)
        self.state.changed.clear()
        return took, sum(isinstance(draft.event, FieldsDesired) for draft in drafts)


def _node(name: str) -> NodeObserved:
    amounts = {"cpu": "96", "memory": "384Gi"}
    metadata = Metadata(name=name, uid=f"uid-{name}", labels={"pool": name[-1]})
    return NodeObserved(
        node=name, object=Node(metadata=metadata, status=NodeStatus(capacity=amounts, allocatable=amounts))
    )


def _pod(node: str, number: int) -> PodObserved:
    name = f"{node}-{number}"
    resources = ResourceRequirements(requests={"cpu": "2", "memory": "8Gi"})
    labels = {"koordinator.sh/priority-class": CLASSES[number % len(CLASSES)], "koordinator.sh/qosClass": "LS"}
    pod = Pod(
        metadata=Metadata(name=name, namespace="default", uid=name, labels=labels),
        spec=PodSpec(node_name=node, containers=(Container(resources=resources),)),
        status=PodStatus(phase="Running", start_time=instant_text(BEGAN)),
    )
    return PodObserved(pod=f"default/{name}", pod_uid=name, object=pod)


def _report(node: str, pods: int, at_s: int, percent: int) -> NodeReported:
    cpu, memory = 20 * percent, 8 * GIB * percent // 100
    listed: dict[str, list[PodReported]] = {}
    for number in range(pods):
        class_ = CLASSES[number % len(CLASSES)]
        listed.setdefault(class_, []).append(PodReported(f"default/{node}-{number}", cpu, memory))
    return NodeReported(
        node=node,
        at_ns=BEGAN + at_s * SECOND,
        interval_s=60,
        aggregate_s=300,
        usage=Usage(pods * cpu + 2_000, pods * memory + 4 * GIB),
        system=Usage(2_000, 4 * GIB),
        pods=tuple(ClassReported(class_, "LS", tuple(each)) for class_, each in sorted(listed.items())),
    )
