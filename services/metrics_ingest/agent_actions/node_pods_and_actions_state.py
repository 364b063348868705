"""State of action ingest: the pods and objects of each node, and the actions that were recorded."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from shared.agents.node_pods import NodePods, agent_node, agent_pod, claims_of
from shared.domain.interference import FIELDS, HINT, INTERFERED
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodBound,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDesired
from shared.events.log import WriterStarted
from shared.events.nodes import (
    AGENT_ACTIONS,
    AgentEvictionRequested,
    BestEffortSuppressed,
    ContainerHooksReported,
    NodeTopologyRemoved,
    NodeTopologyReported,
    PodBurst,
    PodInterfered,
    PodInterferenceEnded,
)
from shared.kube.kept_annotations import MIRROR
from shared.kube.node import Node
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.resource_names import CLAIMS, NODE_TOPOLOGIES
from shared.kube.system_annotations import with_allocations

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        PodObserved,
        PodBound,
        PodDeleted,
        NodeObserved,
        NodeDeleted,
        ObjectObserved,
        ObjectDeleted,
        WriterStarted,
    ),
    "nodes-*": (*AGENT_ACTIONS, NodeTopologyRemoved, FieldsDesired),
}
"""Context -> event types that are folded; all others are skipped."""

NUMBERS_KEPT = 256
"""Numbers kept of one run of an agent, to recognise a repeated action. A number below the oldest kept counts as
repeated."""


class PodOnNode(NamedTuple):
    """A pod that runs on a node.

    Attributes:
        pod: `namespace/name`.
        static: the node itself runs it; the API only shows it.
    """

    pod: str
    node: str
    static: bool = False


class RecordedActions(NamedTuple):
    """The actions recorded of an agent's last run: their numbers, the newest NUMBERS_KEPT, sorted."""

    boot: str
    numbers: tuple[int, ...]


class InterferedPod(NamedTuple):
    """A pod that neighbours slow down.

    Attributes:
        pod: `namespace/name`.
        boot, number: of the action that reported it. hint: the answer is a label of the node.
    """

    pod: str
    boot: str
    number: int
    hint: bool


class NodeView(NamedTuple):
    """The objects of one node that its agent receives, encoded; an empty text stands for no object.

    Attributes:
        epoch, seq: of `cluster`, at the last change.
        object, topology: as in `NodePods`.
        pods: uid as the node has it -> the pod.
    """

    epoch: int = 0
    seq: int = 0
    object: bytes = b""
    topology: bytes = b""
    pods: dict[str, bytes] = {}  # noqa: RUF012  a default that nobody writes to


class ActionIngestState:
    """A fold over `cluster` and the service's own actions.

    Attributes:
        node_views: node -> the objects that its agent receives.
        cluster_epoch: of the gateway.
        pods: uid as nodes have it -> the pod, while it runs.
        allocations: uid -> the allocation of a pod that the scheduler decided, as annotations. Agents receive it in
            place of what the object has, which its owner may have written.
        static: uid of a static pod's mirror -> the uid under which its node runs it.
        recorded_actions: node -> the recorded actions of its agent.
        claims: `namespace/name` of a claim -> the PersistentVolume that it is bound to.
        claimants: claim -> node -> uid of a pod there whose view includes the claim.
        topologies: node -> digest of the newest topology that its agent reported.
        interfered: node -> uid -> pod that is slowed down.
        hinted: nodes whose label INTERFERED is desired -> 1.
    """

    SCHEMA: ClassVar[int] = 10

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, PodOnNode] = {}
        self.allocations: dict[str, dict[str, str]] = {}
        self.static: dict[str, str] = {}
        self.recorded_actions: dict[str, RecordedActions] = {}
        self.node_views: dict[str, NodeView] = {}
        self.cluster_epoch = 0
        self.claims: dict[str, str] = {}
        self.claimants: dict[str, dict[str, str]] = {}
        self.topologies: dict[str, str] = {}
        self.interfered: dict[str, dict[str, InterferedPod]] = {}
        self.hinted: dict[str, int] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        match record.event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(record, key, uid, pod)
            case PodBound(pod_uid=uid, allocations=allocations):
                self._pod_bound(record, uid, allocations)
            case PodDeleted(pod_uid=uid):
                self.allocations.pop(uid, None)
                self._pod_removed(record, self.static.pop(uid, uid))
            case NodeObserved(node=node, object=object_):
                self._update_node_view(record, node, object=_JSON.encode(agent_node(object_)))
            case NodeDeleted(node=node):
                self._update_node_view(record, node, object=b"")
            case ObjectObserved(resource=resource, name=name, object=raw) if resource == NODE_TOPOLOGIES:
                self._update_node_view(
                    record, name, topology=_JSON.encode((raw.get("metadata") or {}).get("annotations") or {})
                )
            case ObjectDeleted(resource=resource, name=name) if resource == NODE_TOPOLOGIES:
                self._update_node_view(record, name, topology=b"")
            case ObjectObserved(resource=resource, name=name, object=raw) if resource == CLAIMS:
                self._claim(record, name, str((raw.get("spec") or {}).get("volumeName") or ""))
            case ObjectDeleted(resource=resource, name=name) if resource == CLAIMS:
                self._claim(record, name, "")
            case WriterStarted(epoch=epoch) if record.context == "cluster":
                self.cluster_epoch = epoch
            case event:
                self._apply_own(event)
        self.positions[record.context] = record.seq

    def _apply_own(self, event: Event) -> None:
        """Folds an event of the service's own context."""
        match event:
            case BestEffortSuppressed() | PodBurst() | AgentEvictionRequested() | ContainerHooksReported() as action:
                self._count(action.node, action.boot, action.number)
            case PodInterfered(node=node, boot=boot, number=number) as event:
                self._count(node, boot, number)
                if event.pod:  # nobody ends the mark of a pod that `cluster` does not have
                    mark = InterferedPod(event.pod, boot, number, event.answer == HINT)
                    self.interfered.setdefault(node, {})[event.pod_uid] = mark
            case PodInterferenceEnded(node=node, boot=boot, number=number) as event:
                if number:  # 0: recorded without an agent
                    self._count(node, boot, number)
                self.interfered.get(node, {}).pop(event.pod_uid, None)
                if not self.interfered.get(node, True):
                    del self.interfered[node]
            case FieldsDesired(fields=fields, name=node, patch=patch) if fields == FIELDS:
                if patch["metadata"]["labels"][INTERFERED]:
                    self.hinted[node] = 1
                else:
                    self.hinted.pop(node, None)
            case NodeTopologyReported(node=node, boot=boot, number=number) as event:
                self._count(node, boot, number)
                self.topologies[node] = digest_of(event)
            case NodeTopologyRemoved(node=node):
                self.topologies.pop(node, None)

    def has_node(self, node: str) -> bool:
        """Reports whether the node is in the cluster."""
        found = self.node_views.get(node)
        return found is not None and found.object != b""

    def _count(self, node: str, boot: str, number: int) -> None:
        self.recorded_actions[node] = with_number(self.recorded_actions.get(node), boot, number)

    def _pod_observed(self, record: RecordedEvent, key: str, api_uid: str, pod: Pod) -> None:
        uid = (pod.metadata.annotations or {}).get(MIRROR) or api_uid
        if uid != api_uid:
            self.static[api_uid] = uid
        if not pod.spec.node_name or pod.status.phase in ENDED_PHASES:
            self._pod_removed(record, uid)
            return
        node = pod.spec.node_name
        if (before := self.pods.get(uid)) is not None and before.node != node:
            # The uid of a static pod's mirror is an annotation, so another node's pod may have it.
            self._pod_removed(record, uid)
        self.pods[uid] = PodOnNode(key, node, uid != api_uid)
        seen = _with_allocations(agent_pod(pod, uid), self.allocations.get(api_uid, {}))
        for claim in claims_of(seen):
            self.claimants.setdefault(claim, {})[node] = uid
        self._update_node_view(record, node, pod=(uid, _JSON.encode(seen)))

    def _pod_bound(self, record: RecordedEvent, uid: str, allocations: dict[str, str]) -> None:
        """Keeps the allocation, which is read before or after the pod is observed on its node."""
        if allocations:
            self.allocations[uid] = allocations
        else:
            self.allocations.pop(uid, None)
        there = self.pods.get(uid)
        if there is not None and (text := self.node_views[there.node].pods.get(uid)) is not None:
            pod = _with_allocations(_POD.decode(text), allocations)
            self._update_node_view(record, there.node, pod=(uid, _JSON.encode(pod)))

    def _claim(self, record: RecordedEvent, claim: str, volume: str) -> None:
        """Records the volume of a claim, and moves the views of nodes whose pods mount it to this position."""
        if self.claims.get(claim, "") == volume:
            return
        if volume:
            self.claims[claim] = volume
        else:
            del self.claims[claim]
        for node, uid in list(self.claimants.get(claim, {}).items()):
            if uid not in self.pods or self.pods[uid].node != node:
                del self.claimants[claim][node]
            elif (found := self.node_views.get(node)) is not None:
                self.node_views[node] = found._replace(epoch=self.cluster_epoch, seq=record.seq)
        if not self.claimants.get(claim, True):
            del self.claimants[claim]

    def _pod_removed(self, record: RecordedEvent, uid: str) -> None:
        if (pod := self.pods.pop(uid, None)) is not None:
            self._update_node_view(record, pod.node, pod=(uid, b""))

    def _update_node_view(
        self,
        record: RecordedEvent,
        node: str,
        *,
        pod: tuple[str, bytes] | None = None,
        object: bytes | None = None,  # noqa: A002  the name of the field
        topology: bytes | None = None,
    ) -> None:
        """Updates one part of a node's view; its position moves only when the part differs."""
        before = self.node_views.get(node, NodeView())
        if pod is not None and before.pods.get(pod[0], b"") == pod[1]:
            return
        if (object is not None and object == before.object) or (topology is not None and topology == before.topology):
            return
        pods = before.pods if node in self.node_views else {}
        if pod is not None:
            uid, packed = pod
            if packed:
                pods[uid] = packed
            else:
                pods.pop(uid, None)
        after = NodeView(
            self.cluster_epoch,
            record.seq,
            before.object if object is None else object,
            before.topology if topology is None else topology,
            pods,
        )
        if after.object or after.topology or after.pods:
            self.node_views[node] = after
        else:
            self.node_views.pop(node, None)

    def node_pods(self, node: str) -> NodePods:
        """Returns the message for a node's agent."""
        found = self.node_views.get(node, NodeView(self.cluster_epoch))
        pods = tuple(msgspec.json.decode(found.pods[uid], type=Pod) for uid in sorted(found.pods))
        return NodePods(
            node,
            found.epoch,
            found.seq,
            msgspec.json.decode(found.object, type=Node) if found.object else None,
            msgspec.json.decode(found.topology, type=dict[str, str]) if found.topology else None,
            pods,
            {claim: self.claims[claim] for pod in pods for claim in claims_of(pod) if claim in self.claims},
        )

    def encode(self) -> bytes:
        """Returns the canonical encoding: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                self.positions,
                self.pods,
                self.allocations,
                self.static,
                self.recorded_actions,
                self.node_views,
                self.cluster_epoch,
                self.claims,
                self.claimants,
                self.topologies,
                self.interfered,
                self.hinted,
            )
        )

    def restore(self, data: bytes) -> None:
        """Replaces the State by one that `encode` wrote."""
        stored = _DECODER.decode(data)
        self.positions, self.pods, self.allocations = stored.positions, stored.pods, stored.allocations
        self.static, self.recorded_actions = stored.static, stored.recorded_actions
        self.node_views, self.cluster_epoch = stored.node_views, stored.cluster_epoch
        self.claims, self.claimants = stored.claims, stored.claimants
        self.topologies, self.interfered, self.hinted = stored.topologies, stored.interfered, stored.hinted


def digest_of(event: NodeTopologyReported) -> str:
    """Returns the digest of a topology, without sender and time."""
    content = (event.annotations, event.policy, event.zones, event.numa_reservation)
    return blake2b(_JSON.encode(content), digest_size=16).hexdigest()


def is_recorded(recorded: RecordedActions | None, boot: str, number: int) -> bool:
    """Reports whether an action was recorded before."""
    if recorded is None or recorded.boot != boot:
        return False
    return number in recorded.numbers or (len(recorded.numbers) == NUMBERS_KEPT and number < recorded.numbers[0])


def with_number(recorded: RecordedActions | None, boot: str, number: int) -> RecordedActions:
    """Returns the recorded numbers with one more; numbers of another run are dropped."""
    before = recorded.numbers if recorded is not None and recorded.boot == boot else ()
    return RecordedActions(boot, tuple(sorted({*before, number}))[-NUMBERS_KEPT:])


def _with_allocations(pod: Pod, allocations: Mapping[str, str]) -> Pod:
    annotations = with_allocations(pod.metadata.annotations, allocations)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


class _Stored(msgspec.Struct):
    """The layout that `encode` writes."""

    positions: dict[str, int]
    pods: dict[str, PodOnNode]
    allocations: dict[str, dict[str, str]]
    static: dict[str, str]
    recorded_actions: dict[str, RecordedActions]
    node_views: dict[str, NodeView]
    cluster_epoch: int
    claims: dict[str, str]
    claimants: dict[str, dict[str, str]]
    topologies: dict[str, str]
    interfered: dict[str, dict[str, InterferedPod]]
    hinted: dict[str, int]


_POD = msgspec.json.Decoder(Pod)
_JSON = msgspec.json.Encoder(order="sorted")
_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)
