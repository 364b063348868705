"""State of metrics ingest: the pods of each node, NodeMetric specs and statuses, NodeSLOs, and recorded reports.

Samples are not part of it: `usage_windows.py` holds them in memory, and they fill again after a restart.
"""

from typing import Any, ClassVar, NamedTuple

import msgspec

from shared.domain.node_metric_status import STATUS
from shared.domain.priority import priority
from shared.domain.qos import qos
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDesired
from shared.events.log import WriterStarted
from shared.events.metrics import NodeHistoryReported, NodeReported, NodeReportsExpired
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.kept_annotations import MIRROR
from shared.kube.node import NodeMetricSpec
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, DesiredStateRejected, DesiredStateFailed, DesiredStateApplied, MissingPermission, WriterStarted,
    ),
    "metrics-*": (NodeReported, NodeHistoryReported, NodeReportsExpired, FieldsDesired),
}  # fmt: skip
"""Context -> event types that are folded; all others are skipped."""

DEFAULT_MEMORY_POLICY = "usageWithoutPageCache"

RUNS_KEPT = 8
"""Runs of an agent whose messages of kept reports are told from repeats: a broker repeats only what is newest."""

GONE_KEPT_NS = 300 * SECOND
"""Nanoseconds for which a removed pod is kept: reports about the time before may still be under way."""


class PodOnNode(NamedTuple):
    """A pod on its node.

    Attributes:
        pod: `namespace/name`.
        gone_ns: append time of its end or removal; 0 while it is there.
    """

    pod: str
    node: str
    priority: str
    qos: str
    gone_ns: int = 0


class NodeSloRecord(NamedTuple):
    """The NodeSLO that a node's agent receives, with the epoch and seq of `cluster` at its last change.

    Attributes:
        spec: of its NodeSLO; None while there is no such object.
        memory_policy: of its NodeMetric; empty: the default.
    """

    epoch: int
    seq: int
    spec: dict[str, object] | None
    memory_policy: str = ""


class ReportIngestState:
    """A fold over `cluster` and the service's own reports.

    Attributes:
        nodes: names of the nodes in the cluster.
        known_pods: uid as nodes have it -> the pod, also for a while after its removal.
        gone: uids of removed pods, in the order of their removal.
        static: uid of a static pod's mirror -> the uid under which its node runs it.
        specs: node -> spec of its NodeMetric; present exactly while the object is.
        status_observed_ns: node -> `status.updateTime` of its NodeMetric, nanoseconds since the epoch; 0 while it has
            none.
        status_desired_ns: node -> time of the newest status that was desired: `at_ns` of the report, or in logs of
            earlier builds the `updateTime` in whole seconds. The gateway does not record its own write of that status,
            so this is newer than `status_observed_ns`.
        slos: node -> the NodeSLO that its agent receives.
        refused: node -> append time of the last rejected write of its NodeMetric; absent after a write or an observed
            change.
        cluster_epoch: of the gateway.
        last_recorded_ns: node -> `at_ns` of the newest recorded report.
        history: node -> run of its agent -> number of its newest recorded message of kept reports; of the newest runs.
    """

    SCHEMA: ClassVar[int] = 6

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.nodes: dict[str, None] = {}
        self.known_pods: dict[str, PodOnNode] = {}
        self.gone: dict[str, None] = {}
        self.static: dict[str, str] = {}
        self.specs: dict[str, NodeMetricSpec] = {}
        self.status_observed_ns: dict[str, int] = {}
        self.status_desired_ns: dict[str, int] = {}
        self.slos: dict[str, NodeSloRecord] = {}
        self.refused: dict[str, int] = {}
        self.cluster_epoch = 0
        self.last_recorded_ns: dict[str, int] = {}
        self.history: dict[str, dict[str, int]] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        if self.gone and record.context == "cluster":
            self._forget_gone(record.at_ns)
        match record.event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(record, key, uid, pod)
            case PodDeleted(pod_uid=uid):
                self._pod_removed(record, self.static.pop(uid, uid))
            case NodeReported() | NodeHistoryReported() as event:
                self._reported(event)
            case NodeReportsExpired(node=node, at_ns=at_ns):
                self._reports_expired(node, at_ns)
            case FieldsDesired() as event:
                self._status_desired(event)
            case NodeMetricObserved(node=node, object=metric):
                self.specs[node] = metric.spec
                self.status_observed_ns[node] = _readable_ns(metric.status.update_time)
                self.refused.pop(node, None)
                self._update_agent_slo(record, node, memory_policy=_memory_policy(metric.spec))
            case NodeMetricDeleted(node=node):
                self.specs.pop(node, None)
                self.status_observed_ns.pop(node, None)
                self.refused.pop(node, None)
                self._update_agent_slo(record, node, memory_policy="")
            case NodeObserved(node=node):
                self.nodes[node] = None
            case NodeDeleted(node=node):
                self.nodes.pop(node, None)
                self.refused.pop(node, None)
            case ObjectObserved() | ObjectDeleted() as event:
                self._slo(record, event)
            case DesiredStateApplied() | DesiredStateRejected() | DesiredStateFailed() | MissingPermission() as event:
                self._write_outcome(record, event)
            case WriterStarted(epoch=epoch) if record.context == "cluster":
                self.cluster_epoch = epoch
        self.positions[record.context] = record.seq

    def _pod_observed(self, record: RecordedEvent, key: str, api_uid: str, pod: Pod) -> None:
        uid = (pod.metadata.annotations or {}).get(MIRROR) or api_uid
        if uid != api_uid:
            self.static[api_uid] = uid
        if not pod.spec.node_name:
            return
        if pod.status.phase in ENDED_PHASES:
            self._pod_removed(record, uid)
            return
        self.known_pods[uid] = PodOnNode(key, pod.spec.node_name, priority(pod).value, qos(pod).value)
        self.gone.pop(uid, None)

    def _pod_removed(self, record: RecordedEvent, uid: str) -> None:
        pod_on_node = self.known_pods.get(uid)
        if pod_on_node is None or pod_on_node.gone_ns:
            return
        self.known_pods[uid] = pod_on_node._replace(gone_ns=record.at_ns)
        self.gone[uid] = None

    def _forget_gone(self, at_ns: int) -> None:
        while self.gone and self.known_pods[first := next(iter(self.gone))].gone_ns < at_ns - GONE_KEPT_NS:
            del self.gone[first], self.known_pods[first]

    def _slo(self, record: RecordedEvent, event: ObjectObserved | ObjectDeleted) -> None:
        if event.resource == NODE_SLOS:
            spec = event.object.get("spec") or {} if isinstance(event, ObjectObserved) else None
            self._update_agent_slo(record, event.name, spec=spec)

    def _update_agent_slo(self, record: RecordedEvent, node: str, **changed: Any) -> None:
        """Updates the NodeSLO of a node's agent.

        An unchanged memory policy, or the default where none was set, is no change.
        """
        before = self.slos.get(node)
        if "spec" not in changed and changed["memory_policy"] == (before.memory_policy if before else ""):
            return
        whole = (before or NodeSloRecord(0, 0, None))._replace(**changed)
        self.slos[node] = whole._replace(epoch=self.cluster_epoch, seq=record.seq)

    def _reported(self, event: NodeReported | NodeHistoryReported) -> None:
        if isinstance(event, NodeHistoryReported):
            self._history_reported(event.node, event.boot, event.number)
            return
        self.last_recorded_ns[event.node] = max(event.at_ns, self.last_recorded_ns.get(event.node, 0))
        if event.status_desired:
            self.status_desired_ns[event.node] = event.at_ns

    def _history_reported(self, node: str, boot: str, number: int) -> None:
        runs = self.history.setdefault(node, {})
        runs[boot] = max(number, runs.pop(boot, 0))  # the newest one is the last
        while len(runs) > RUNS_KEPT:
            del runs[next(iter(runs))]

    def _reports_expired(self, node: str, at_ns: int) -> None:
        if self.last_recorded_ns.get(node, 0) <= at_ns:
            self.last_recorded_ns.pop(node, None)
            self.status_desired_ns.pop(node, None)
            self.history.pop(node, None)

    def _status_desired(self, event: FieldsDesired) -> None:
        if (event.resource, event.fields) == (NODE_METRICS, STATUS):
            self.status_desired_ns[event.name] = status_time_ns(event)

    def _write_outcome(
        self,
        record: RecordedEvent,
        event: DesiredStateApplied | DesiredStateRejected | DesiredStateFailed | MissingPermission,
    ) -> None:
        if record.cause is None or not record.cause.context.startswith("metrics-"):
            return
        if isinstance(event, DesiredStateApplied):
            self.refused.pop(event.name, None)
        else:
            self.refused[event.name] = record.at_ns

    def encode(self) -> bytes:
        """Returns the canonical encoding: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                positions=self.positions,
                nodes=sorted(self.nodes),
                known_pods=self.known_pods,
                # Removals come from one context, so their order is the same however contexts interleave.
                gone=list(self.gone),
                static=self.static,
                specs=self.specs,
                status_observed_ns=self.status_observed_ns,
                status_desired_ns=self.status_desired_ns,
                slos=self.slos,
                refused=self.refused,
                cluster_epoch=self.cluster_epoch,
                last_recorded_ns=self.last_recorded_ns,
                # Runs are in the order of their newest message, which is one context's.
                history={node: list(runs.items()) for node, runs in self.history.items()},
            )
        )

    def restore(self, data: bytes) -> None:
        """Replaces the State by one that `encode` wrote."""
        stored = _DECODER.decode(data)
        self.history = {node: dict(runs) for node, runs in stored.history.items()}
        self.nodes, self.gone = dict.fromkeys(stored.nodes), dict.fromkeys(stored.gone)
        for name in (
            "positions",
            "known_pods",
            "static",
            "specs",
            "status_observed_ns",
            "status_desired_ns",
            "slos",
            "refused",
            "cluster_epoch",
            "last_recorded_ns",
        ):
            setattr(self, name, getattr(stored, name))


def status_time_ns(event: FieldsDesired) -> int:
    """Returns the `updateTime` of a desired status, nanoseconds since the epoch."""
    return _readable_ns(event.patch["status"]["updateTime"])


def _memory_policy(spec: NodeMetricSpec) -> str:
    """Returns the memory policy.

    Empty for the default, so that a NodeMetric that sets the default causes no new message to the agent.
    """
    policy = spec.metric_collect_policy
    memory_policy = (policy.node_memory_collect_policy or "") if policy else ""
    return "" if memory_policy == DEFAULT_MEMORY_POLICY else memory_policy


def _readable_ns(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0


class _Stored(msgspec.Struct):
    """The layout that `encode` writes."""

    positions: dict[str, int]
    nodes: list[str]
    known_pods: dict[str, PodOnNode]
    gone: list[str]
    static: dict[str, str]
    specs: dict[str, NodeMetricSpec]
    status_observed_ns: dict[str, int]
    status_desired_ns: dict[str, int]
    slos: dict[str, NodeSloRecord]
    refused: dict[str, int]
    cluster_epoch: int
    last_recorded_ns: dict[str, int]
    history: dict[str, list[tuple[str, int]]]


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)
