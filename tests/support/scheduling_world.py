"""A small world for the scheduler's tests: objects, the logs, and a scheduler that may lag behind the cluster."""

from collections.abc import Mapping, Sequence

import msgspec

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    PodBound,
    PodDeleted,
)
from shared.events.log import ConfigApplied
from shared.events.metrics import NodeReported, Usage
from shared.events.scheduling import (
    CycleDecided,
    PlacementReleased,
    PlacementReserved,
    PodOutcome,
    PodPlaced,
    PodUnschedulable,
)
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import (
    Node,
    NodeMetric,
    NodeMetricStatus,
    NodeSpec,
    NodeStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
    Taint,
)
from shared.kube.pod import (
    Affinity,
    Container,
    ContainerPort,
    Pod,
    PodCondition,
    ResourceRequirements,
    SchedulingGate,
    Toleration,
)
from tests.support.pods import kept_pod, observed

GIB = 1 << 30
START_NS = 1_780_000_000 * SECOND


def node(
    name: str,
    cpu: str = "4",
    memory: str = "8Gi",
    *,
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
    annotations: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Node:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}
    return Node(
        metadata=Metadata(
            name=name,
            uid=f"node-{name}",
            labels=dict(labels or {}) or None,
            annotations=dict(annotations or {}) or None,
        ),
        spec=NodeSpec(unschedulable=unschedulable, taints=tuple(taints)),
        status=NodeStatus(allocatable=allocatable),
    )


def pod(
    name: str,
    cpu: str | None = "500m",
    memory: str | None = "512Mi",
    *,
    on: str = "",
    phase: str = "Pending",
    scheduler: str = "koord-scheduler",
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: Sequence[Toleration] = (),
    ports: Sequence[int] = (),
    gates: Sequence[str] = (),
    deleting: bool = False,
    conditions: Sequence[PodCondition] = (),
    extra: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None} | dict(
        extra or {}
    )
    taken = tuple(ContainerPort(host_port=port, container_port=port) for port in ports)
    return kept_pod(
        name,
        labels=labels,
        annotations=annotations,
        deleted=instant_text(START_NS) if deleting else None,
        phase=phase,
        conditions=conditions,
        node_name=on,
        scheduler_name=scheduler,
        priority=priority,
        node_selector=dict(selector or {}) or None,
        affinity=affinity,
        tolerations=tuple(tolerations),
        scheduling_gates=tuple(SchedulingGate(name=gate) for gate in gates),
        containers=(Container(name="c", resources=ResourceRequirements(requests=requests or None), ports=taken),),
    )


def metric(
    name: str, cpu: str, memory: str = "1Gi", *, at_ns: int = START_NS, pods: Sequence[PodUsage] = ()
) -> NodeMetric:
    used = ResourceMap(resources={"cpu": cpu, "memory": memory})
    status = NodeMetricStatus(
        update_time=instant_text(at_ns), node_metric=NodeUsage(node_usage=used), pods_metric=tuple(pods)
    )
    return NodeMetric(metadata=Metadata(name=name), status=status)


def report(name: str, cpu_milli: int, memory: int = GIB, *, at_ns: int = START_NS) -> NodeReported:
    return NodeReported(node=name, at_ns=at_ns, interval_s=60, aggregate_s=300, usage=Usage(cpu_milli, memory))


class World:
    """The logs of `cluster`, `scheduling` and `metrics-*`, and a scheduler that lags behind `cluster` as a test
    requires.
    """

    def __init__(
        self, *, believes_annotations: bool = False, by_sub_priority: bool = True, backfill: bool = False
    ) -> None:
        self.backfill = backfill
        self.believes_annotations = believes_annotations
        self.by_sub_priority = by_sub_priority
        self.scheduler_gates: frozenset[str] = frozenset()
        self.logs: dict[str, list[RecordedEvent]] = {"cluster": [], "scheduling": []}
        self.view = SchedulerState()
        self.cache: CycleInputs | None = None
        self.now_ns = START_NS

    # the cluster

    def observe(self, event: Event, cause: Cause | None = None) -> RecordedEvent:
        """Appends as the gateway does; the scheduler has not read it yet."""
        return self.append("cluster", event, cause)

    def add_node(self, node: Node) -> None:
        self.observe(NodeObserved(node=node.metadata.name, object=node))

    def drop_node(self, name: str) -> None:
        self.observe(NodeDeleted(node=name, node_uid=f"node-{name}"))

    def report(self, metric: NodeMetric) -> None:
        self.observe(NodeMetricObserved(node=metric.metadata.name, object=metric))

    def drop_report(self, name: str) -> None:
        self.observe(NodeMetricDeleted(node=name))

    def report_usage(self, event: NodeReported, context: str = "metrics-0") -> None:
        """Appends a report as ingest does."""
        self.append(context, event, None)

    def add_pod(self, pod: Pod) -> None:
        self.observe(observed(pod))

    def drop_pod(self, uid: str) -> None:
        self.observe(PodDeleted(pod=f"d/{uid}", pod_uid=uid))

    def answer(self, placed: RecordedEvent, how: str = "bound") -> None:
        """Appends the gateway's outcome of a placement; when it is bound, the pod is observed on its node as well."""
        event = placed.event
        assert isinstance(event, PodPlaced)
        cause = Cause("scheduling", placed.seq)
        kinds = {
            "bound": PodBound(pod=event.pod, pod_uid=event.pod_uid, node=event.node),
            "rejected": BindRejected(pod=event.pod, pod_uid=event.pod_uid, reason="no"),
            "failed": BindFailed(pod=event.pod, pod_uid=event.pod_uid, reason="late"),
            "suppressed": BindSuppressed(pod=event.pod, pod_uid=event.pod_uid),
            "forbidden": MissingPermission(name=event.pod, rule="create pods/binding", pod_uid=event.pod_uid),
        }
        self.observe(kinds[how], cause)

    # the scheduler

    def read(self, upto: int | None = None) -> None:
        """Folds the cluster's log into the scheduler's State, all of it or up to a seq, and the recorded reports."""
        for context in ("cluster", *(name for name in self.logs if name.startswith("metrics-"))):
            at = self.view.positions.get(context, 0)
            for record in self.logs[context][at : upto if context == "cluster" else None]:
                self.fold(record)

    def indexed(self) -> CycleInputs:
        if self.cache is None:
            self.cache = CycleInputs(
                self.view,
                config_of(self.view).profiles,
                believes_annotations=self.believes_annotations,
                by_sub_priority=self.by_sub_priority,
                scheduler_gates=self.scheduler_gates,
                backfill=self.backfill,
            )
        return self.cache

    def cycle(self, batch: int = 256) -> list[RecordedEvent]:
        """Decides one cycle on the folded State. Returns its events, appended and folded."""
        return self.append_drafts(decide(self.indexed(), self.now_ns, batch))

    def cycles(self, batch: int = 256, most: int = 100) -> list[RecordedEvent]:
        """Decides cycles until one has nothing to do."""
        events: list[RecordedEvent] = []
        for _ in range(most):
            decided = self.cycle(batch)
            if not decided:
                return events
            events += decided
        raise AssertionError(f"still deciding after {most} cycles")

    def append_drafts(self, drafts: Sequence[Draft]) -> list[RecordedEvent]:
        """Appends and folds drafts of the scheduler, the first with the fields that the runner sets."""
        return self.record(drafts, self.now_ns, dict(self.view.positions), self.view.config_digest)

    def record(self, drafts: Sequence[Draft], now_ns: int, seen: Mapping[str, int], config: str) -> list[RecordedEvent]:
        """Appends and folds drafts of the scheduler, the first with the inputs of the decision."""
        if not drafts:
            return []
        head = {"seen": dict(seen), "now_ns": now_ns, "config": config}
        events = [msgspec.structs.replace(drafts[0].event, **head), *(draft.event for draft in drafts[1:])]
        records = [self.append("scheduling", event, draft.cause) for event, draft in zip(events, drafts, strict=True)]
        for record in records:
            self.fold(record)
        return records

    def fold(self, record: RecordedEvent) -> None:
        """Folds a record into the scheduler's State."""
        self.view.apply(record)

    def place(self, uid: str, on: str) -> RecordedEvent:
        """Records a cycle of one pod that places it on the node, without evaluating the rules."""
        decided = CycleDecided(cycle=self.view.cycle + 1, pods=(PodOutcome(pod_uid=uid, class_index=0, node=on),))
        placed = PodPlaced(pod_uid=uid, pod=f"d/{uid}", node=on, cycle=self.view.cycle + 1, request={})
        return self.append_drafts((Draft(decided), Draft(placed)))[1]

    def hold(self, uid: str, on: str, unit: str = "") -> RecordedEvent:
        """Records a cycle that holds capacity for the pod on the node, without evaluating the rules."""
        decided = CycleDecided(cycle=self.view.cycle + 1, pods=(PodOutcome(pod_uid=uid, class_index=0, node=on),))
        held = PlacementReserved(
            holder_uid=uid, holder=f"d/{uid}", kind="Pod", node=on, cycle=self.view.cycle + 1, waits_for="unit",
            request={}, unit=unit,
        )  # fmt: skip
        return self.append_drafts((Draft(decided), Draft(held)))[1]

    def release(self, uid: str, of: str) -> RecordedEvent:
        """Records that the capacity held for the pod on the node is free again."""
        released = PlacementReleased(
            holder_uid=uid, holder=f"d/{uid}", kind="Pod", node=of, reason="it waited too long"
        )
        return self.append_drafts((Draft(released),))[0]

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)

    def append(self, context: str, event: Event, cause: Cause | None) -> RecordedEvent:
        log = self.logs.setdefault(context, [])
        record = RecordedEvent(context, len(log) + 1, event, self.now_ns, cause)
        log.append(record)
        return record


def placements(records: Sequence[RecordedEvent]) -> dict[str, str]:
    """Returns uid -> node of the PodPlaced among the events."""
    return {record.event.pod_uid: record.event.node for record in records if isinstance(record.event, PodPlaced)}


def unschedulable(records: Sequence[RecordedEvent]) -> dict[str, PodUnschedulable]:
    """Returns uid -> PodUnschedulable among the events."""
    return {record.event.pod_uid: record.event for record in records if isinstance(record.event, PodUnschedulable)}


def cycles_of(records: Sequence[RecordedEvent]) -> list[CycleDecided]:
    return [record.event for record in records if isinstance(record.event, CycleDecided)]


def fold(records: Sequence[RecordedEvent]) -> SchedulerState:
    view = SchedulerState()
    for record in records:
        view.apply(record)
    view.read()
    return view


def use(world: World, text: str) -> None:
    """Puts a configuration in force."""
    world.view.apply(world.append("scheduling", ConfigApplied(source="test", digest=text[-40:], text=text), None))


def thresholds(cpu: int, memory: int) -> str:
    return (
        DEFAULT_PROFILE.replace("cpu: 0\n        memory: 0", f"cpu: {cpu}\n        memory: {memory}")
        .replace("filterExpiredNodeMetrics: false", "filterExpiredNodeMetrics: true")
    )  # fmt: skip
