"""What ingest must know of the cluster to say whose usage a report tells of, and what it has said itself.

The samples are not here: they are the shell's (windows.py), and fill again after a restart.
"""

from typing import Any, ClassVar, NamedTuple

import msgspec

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
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.kept_annotations import MIRROR
from shared.kube.node import NodeMetricSpec
from shared.kube.pod import Pod
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, DesiredStateRejected, DesiredStateFailed, DesiredStateApplied, MissingPermission, WriterStarted,
    ),
    "metrics-*": (NodeReported, NodeReportsExpired, FieldsDesired),
}  # fmt: skip
"""Context -> event types folded; the others pass."""

STATUS = "status"
"""The field group of a NodeMetric that ingest owns."""

DEFAULT_MEMORY_POLICY = "usageWithoutPageCache"

GONE_KEPT_NS = 300 * SECOND
"""How long a pod that is gone is remembered: reports of the time before may still be under way."""

_ENDED = frozenset(("Succeeded", "Failed"))


class PodOnNode(NamedTuple):
    """A pod on its node.

    Attributes:
        pod: `namespace/name`.
        gone_ns: when it was seen to have ended or gone (append time); 0 while it is there.
    """

    pod: str
    node: str
    priority: str
    qos: str
    gone_ns: int = 0


class NodeSloRecord(NamedTuple):
    """What a node's agent is told, and the epoch and seq of `cluster` that said so.

    Attributes:
        spec: of its NodeSLO; None while there is no such object.
        memory_policy: of its NodeMetric; empty while that asks for nothing.
    """

    epoch: int
    seq: int
    spec: dict[str, object] | None
    memory_policy: str = ""


class IngestState:
    """A fold over `cluster` and our own reports.

    Attributes:
        nodes: names of the nodes that are there.
        known_pods: uid as nodes know it -> the pod, also for a while after it has gone.
        gone: uids of those that are gone, in the order in which they went.
        static: uid of a static pod's image -> the uid under which its node runs it.
        specs: node -> spec of its NodeMetric; present exactly while the object is.
        updated: node -> `status.updateTime` of its NodeMetric, nanoseconds since the epoch; 0 while it has none that can be read.
        told: node -> the same of the newest status that we decided, which the gateway does not record again when it is written.
        slos: node -> what its agent is told.
        refused: node -> when (append time) a write of its NodeMetric was refused last; none since it was written or seen to change.
        cluster_epoch: of the gateway.
        reported: node -> `at_ns` of the newest report that was recorded.
    """

    SCHEMA: ClassVar[int] = 4

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

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event."""
        match record.event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(record, key, uid, pod)
            case PodDeleted(pod_uid=uid):
                self._pod_removed(record, self.static.pop(uid, uid))
            case NodeReported(node=node, at_ns=at_ns):
                self.last_recorded_ns[node] = max(at_ns, self.last_recorded_ns.get(node, 0))
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
        if pod.status.phase in _ENDED:
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
        while self.known_pods[first := next(iter(self.gone))].gone_ns < record.at_ns - GONE_KEPT_NS:
            del self.gone[first], self.known_pods[first]

    def _slo(self, record: RecordedEvent, event: ObjectObserved | ObjectDeleted) -> None:
        if event.resource == NODE_SLOS:
            spec = event.object.get("spec") or {} if isinstance(event, ObjectObserved) else None
            self._update_agent_slo(record, event.name, spec=spec)

    def _update_agent_slo(self, record: RecordedEvent, node: str, **changed: Any) -> None:
        """Take a change of what a node's agent is told; a policy that stays the same, or is the default as before, is none."""
        before = self.slos.get(node)
        if "spec" not in changed and changed["memory_policy"] == (before.memory_policy if before else ""):
            return
        whole = (before or NodeSloRecord(0, 0, None))._replace(**changed)
        self.slos[node] = whole._replace(epoch=self.cluster_epoch, seq=record.seq)

    def _reports_expired(self, node: str, at_ns: int) -> None:
        if self.last_recorded_ns.get(node, 0) <= at_ns:
            self.last_recorded_ns.pop(node, None)
            self.status_desired_ns.pop(node, None)

    def _status_desired(self, event: FieldsDesired) -> None:
        if (event.resource, event.fields) == (NODE_METRICS, STATUS):
            self.status_desired_ns[event.name] = _readable_ns(event.patch["status"]["updateTime"])

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
        """Canonical: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                positions=self.positions,
                nodes=sorted(self.nodes),
                known_pods=self.known_pods,
                gone=list(self.gone),  # in the order of one context, so it is the same however contexts interleave
                static=self.static,
                specs=self.specs,
                status_observed_ns=self.status_observed_ns,
                status_desired_ns=self.status_desired_ns,
                slos=self.slos,
                refused=self.refused,
                cluster_epoch=self.cluster_epoch,
                last_recorded_ns=self.last_recorded_ns,
            )
        )

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        stored = _DECODER.decode(data)
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


def _memory_policy(spec: NodeMetricSpec) -> str:
    """Empty for the default, so that a NodeMetric that states it is no news for the agent."""
    policy = spec.metric_collect_policy
    memory_policy = (policy.node_memory_collect_policy or "") if policy else ""
    return "" if memory_policy == DEFAULT_MEMORY_POLICY else memory_policy


def _readable_ns(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0


class _Stored(msgspec.Struct):
    """What `encode` writes."""

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


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)
