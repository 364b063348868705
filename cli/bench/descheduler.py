"""`koord bench descheduler`: one cycle of the descheduler on a fleet, with the scheduler's engine for its destinations,
in one process without servers.

A fifth of the nodes is hot: every node is classified, every pod of a hot node is a candidate that must fit another node
(nodeFit), and every victim gets a destination.
"""

import gc
import os
import resource
import time

import click
import msgspec

from cli.terminal.output import show_table
from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.framework.cycle import decide_cycle, plan_cycle
from services.descheduler.settings import DecisionSettings, in_force
from services.descheduler.state.descheduler_state import DeschedulerState
from services.scheduler.extender_server.destinations_of_moves import destinations
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.domain.move_destinations import DestinationsResponse
from shared.domain.offered_config import OfferedConfig
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.events.descheduling import EvictionCaseOpened
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements

BEGAN_NS = 1_780_000_000 * SECOND
GIB = 1 << 30
CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 10s
maxNoOfPodsToEvictTotal: 200
profiles:
  - plugins:
      balance: {enabled: [{name: LowNodeLoad}]}
    pluginConfig:
      - name: LowNodeLoad
        args:
          lowThresholds: {cpu: 45, memory: 55}
          highThresholds: {cpu: 75, memory: 80}
          anomalyCondition: {consecutiveAbnormalities: 1, consecutiveNormalities: 1}
"""
CPU_MILLI = 32_000
HOT_PERCENT, COLD_PERCENT = 85, 30
NODES_PER_WORKLOAD = 20
"""Nodes over which the pods of one ReplicaSet are spread, one on each."""


class DeschedulerFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        first_ms: the first cycle after a start, which reads every pod.
        cycle_ms: choosing the pods and recording the case, after a new report of every node; the median of the cycles.
            This and the others are time of this process on a cpu, so that other load does not count; cycle_wall_ms is
            the same by the clock.
        destinations_ms: the scheduler's answer for all victims; not a part of cycle_ms.
        idle_ms: a cycle on a fleet without hot nodes, with a new report of every node.
        candidates: pods of hot nodes. victims: of the last cycle.
        rss_mib: the process at its largest.
    """

    nodes: int
    pods: int
    candidates: int
    victims: int
    first_ms: float
    cycle_ms: float
    cycle_wall_ms: float
    destinations_ms: float
    idle_ms: float
    rss_mib: float
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=2), default=5_000, show_default=True, help="Nodes.")
@click.option("--pods", type=click.IntRange(min=1), default=100_000, show_default=True, help="Pods on them.")
@click.option("--cycles", type=click.IntRange(min=1), default=5, show_default=True, help="Cycles of which the median counts.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def descheduler(*, nodes: int, pods: int, cycles: int, as_json: bool) -> None:
    """Measure one cycle of the descheduler on a fleet: no servers."""
    figures = measure(nodes, pods, cycles)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), msgspec.structs.asdict(figures).items())


def measure(nodes: int, pods: int, cycles: int) -> DeschedulerFigures:
    """Builds a fleet, and decides cycles on it."""
    fleet = Fleet(nodes, max(pods // nodes, 1))
    fleet.report(hot=True)
    gc.collect()
    gc.freeze()
    first = fleet.cycle()
    took = [fleet.cycle_after_reports(hot=True) for _ in range(cycles)]
    idle = [fleet.cycle_after_reports(hot=False) for _ in range(cycles)]
    return DeschedulerFigures(
        nodes=nodes,
        pods=fleet.pods,
        candidates=fleet.candidates,
        victims=took[-1][2],
        first_ms=_median_ms([first[0]]),
        cycle_ms=_median_ms([each[0] for each in took]),
        cycle_wall_ms=_median_ms([each[3] for each in took]),
        destinations_ms=_median_ms([each[1] for each in took]),
        idle_ms=_median_ms([each[0] for each in idle]),
        rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        load_1m=round(os.getloadavg()[0], 2),
    )


def _median_ms(seconds: list[float]) -> float:
    return round(sorted(seconds)[len(seconds) // 2] * 1000, 1)


class Fleet:
    """Nodes of 32 cores with equal numbers of pods; the State and the scheduler fold the same events.

    Attributes:
        pods: number of them. candidates: those of hot nodes.
    """

    def __init__(self, nodes: int, per_node: int) -> None:
        self._state = DeschedulerState()
        self._scheduler = InMemoryScheduler()
        self._seqs: dict[str, int] = {}
        self._names = [f"node-{number:05}" for number in range(nodes)]
        self._per_node = per_node
        self.pods = nodes * per_node
        self.candidates = len([number for number in range(nodes) if number % 5 == 0]) * per_node
        self._now_ns = BEGAN_NS
        for name in self._names:
            self._observe(_node(name))
        for first in range(0, nodes, NODES_PER_WORKLOAD):
            for number in range(per_node):
                self._observe(_replica_set(f"web-{first}-{number}"))
        for row, name in enumerate(self._names):
            for number in range(per_node):
                self._observe(_pod(name, number, f"web-{row - row % NODES_PER_WORKLOAD}-{number}"))
        for draft in config_drafts(self._state, OfferedConfig("bench", CONFIG), DecisionSettings()):
            self._append("descheduling", draft.event)
        self._scheduler.cache.settle()

    def report(self, *, hot: bool) -> None:
        """A new report of every node; of a fifth of them with a high usage."""
        self._now_ns += 60 * SECOND
        for number, name in enumerate(self._names):
            percent = HOT_PERCENT if hot and number % 5 == 0 else COLD_PERCENT
            used = CPU_MILLI * percent // 100 // self._per_node
            pods = tuple(PodReported(f"default/{name}-{each}", used, GIB) for each in range(self._per_node))
            event = NodeReported(
                node=name,
                at_ns=self._now_ns,
                interval_s=60,
                aggregate_s=300,
                usage=Usage(used * self._per_node, GIB * self._per_node),
                pods=(ClassReported("koord-batch", "BE", pods),),
            )
            self._append("metrics-0", event)

    def cycle_after_reports(self, *, hot: bool) -> tuple[float, float, int, float]:
        """One cycle after a new report of every node."""
        self.report(hot=hot)
        return self.cycle()

    def cycle(self) -> tuple[float, float, int, float]:
        """One cycle; returns the seconds of it, of the scheduler's answer, its victims, and the seconds by the clock.
        Nothing is folded.
        """
        configuration, state = self._state.configuration, self._state
        assert configuration is not None, "it was applied"
        settings = in_force(state.config_settings)
        began, wall = time.process_time(), time.perf_counter()
        plan = plan_cycle(state, configuration, settings, self._now_ns)
        planned, wall_planned = time.process_time(), time.perf_counter()
        found = destinations(self._scheduler.cache, plan.moves, self._now_ns)
        answered, wall_answered = time.process_time(), time.perf_counter()
        response = DestinationsResponse(nodes=dict(found.nodes), refused=dict(found.refused))
        drafts = decide_cycle(plan, response, configuration, settings)
        own_s = planned - began + time.process_time() - answered
        wall_s = wall_planned - wall + time.perf_counter() - wall_answered
        victims = sum(len(d.event.victims) for d in drafts if isinstance(d.event, EvictionCaseOpened))
        return own_s, answered - planned, victims, wall_s

    def _observe(self, event: Event) -> None:
        self._append("cluster", event)
        self._scheduler.observe((event,), self._now_ns)

    def _append(self, context: str, event: Event) -> None:
        seq = self._seqs[context] = self._seqs.get(context, 0) + 1
        self._state.apply(RecordedEvent(context, seq, event, self._now_ns))


def _node(name: str) -> NodeObserved:
    amounts = {"cpu": str(CPU_MILLI // 1000), "memory": "128Gi", "pods": "256"}
    metadata = Metadata(name=name, uid=name, labels={"kubernetes.io/hostname": name})
    return NodeObserved(
        node=name, object=Node(metadata=metadata, status=NodeStatus(capacity=amounts, allocatable=amounts))
    )


def _replica_set(name: str) -> ObjectObserved:
    body = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"replicas": NODES_PER_WORKLOAD}}
    return ObjectObserved(resource="replicasets.apps", name=f"default/{name}", uid=name, object=body)


def _pod(node: str, number: int, workload: str) -> PodObserved:
    name = f"{node}-{number}"
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=workload, uid=workload, controller=True)
    requests = ResourceRequirements(requests={"cpu": "500m", "memory": "1Gi"})
    pod = Pod(
        metadata=Metadata(name=name, namespace="default", uid=name, owner_references=(owner,)),
        spec=PodSpec(
            node_name=node,
            scheduler_name="koord-scheduler",
            priority=5500,
            containers=(Container(name="c", resources=requests),),
        ),
        status=PodStatus(
            phase="Running", qos_class="Burstable", conditions=(PodCondition(type="Ready", status="True"),)
        ),
    )
    return PodObserved(pod=pod.metadata.key, pod_uid=name, object=pod)
