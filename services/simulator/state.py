"""The simulated cluster: a fold over the events of `cluster`, and the open intents of other services.

There is no second copy: the simulator's API reads this State and writes events, and a restart rebuilds the cluster from
its log.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec

from services.simulator.api.resource_kinds import NODE_METRICS, NODES, PODS
from shared.domain.node_metric_status import desired_status
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    OUTCOMES,
    ClusterIdentified,
    DesiredStateApplied,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.metrics import NodeReported
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import instant_ns
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod
from shared.runtime.declared_intents import declared_refusal
from shared.runtime.intent_rights import Refusal

Object = Pod | Node | NodeMetric | dict[str, Any]
"""An object as its events hold it."""

Intent = PodPlaced | PodUnschedulable | EvictionRequested | FieldsDesired | ObjectDesired


class _Stored(msgspec.Struct):
    """The stored form of the State."""

    positions: dict[str, int]
    cluster: str
    objects: dict[str, dict[str, Any]]
    created: int
    arrivals: int
    began_ns: int
    now_ns: int
    open_intents: dict[str, list[tuple[int, Intent]]]
    early_outcomes: dict[str, list[tuple[int, bool]]]
    desired_states: list[tuple[str, int, FieldsDesired | ObjectDesired]]


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)

ARRIVAL = "simulator.koordinator.sh/arrival"
"""Annotation of a generated pod: its number, from 0."""


class DesiredState(NamedTuple):
    """The newest desired state of a field group, and its position in its log."""

    seq: int
    intent: FieldsDesired | ObjectDesired


class SimulatorState:
    """The cluster, and the open intents.

    Attributes:
        cluster: the cluster that the log describes; empty until it is recorded.
        objects: resource -> key -> object.
        pods_on: node -> keys of the pods bound to it; follows from `objects`.
        created: number of objects created so far, from which the next uid is derived.
        arrivals: number of generated pods so far.
        began_ns: creation of the first generated pod.
        now_ns: the newest instant in the own log.
        open_intents: context -> seq -> intent without an outcome.
        early_outcomes: context -> seq -> whether the desired state was applied, for outcomes read before their intent.
        desired_states: (resource, name) -> (context, field group) -> the newest desired state.
    """

    SCHEMA: ClassVar[int] = 6

    def __init__(self, refusal: Refusal = declared_refusal) -> None:
        """Starts empty; `refusal` is the check of each intent."""
        self.refusal = refusal
        self.positions: dict[str, int] = {}
        self.cluster = ""
        self.objects: dict[str, dict[str, Object]] = {}
        self.pods_on: dict[str, dict[str, None]] = {}
        self.created = 0
        self.arrivals = 0
        self.began_ns = 0
        self.now_ns = 0
        self.open_intents: dict[str, dict[int, Intent]] = {}
        self.early_outcomes: dict[str, dict[int, bool]] = {}
        self.desired_states: dict[tuple[str, str], dict[tuple[str, str], DesiredState]] = {}
        self._objects_by_seq: dict[tuple[str, int], tuple[str, str]] = {}  # (context, seq) -> object of a desired state

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of `cluster` or of a context with intents."""
        event = record.event
        if record.context == "cluster":
            if event.now_ns is not None and event.now_ns > self.now_ns:
                self.now_ns = event.now_ns
            if isinstance(event, OUTCOMES):
                self._apply_outcome(record.cause, is_applied=isinstance(event, DesiredStateApplied))
            else:
                self._apply_observation(event)
        elif isinstance(event, PodPlaced | PodUnschedulable | EvictionRequested | FieldsDesired | ObjectDesired):
            self._apply_intent(record.context, record.seq, event)
        elif isinstance(event, NodeReported) and event.status_desired:
            self._apply_intent(record.context, record.seq, desired_status(event))
        self.positions[record.context] = record.seq

    def pods(self) -> Mapping[str, Pod]:
        """Returns the pods by `namespace/name`."""
        return self.objects.get(PODS.name, {})  # type: ignore[return-value]  # PodObserved holds nothing else

    def nodes(self) -> Mapping[str, Node]:
        """Returns the nodes by name."""
        return self.objects.get(NODES.name, {})  # type: ignore[return-value]  # NodeObserved holds nothing else

    def node_metrics(self) -> Mapping[str, NodeMetric]:
        """Returns the NodeMetrics by node."""
        return self.objects.get(NODE_METRICS.name, {})  # type: ignore[return-value]  # NodeMetricObserved holds nothing else

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                positions={context: seq for context, seq in self.positions.items() if seq},
                cluster=self.cluster,
                objects={resource: objects for resource, objects in self.objects.items() if objects},
                created=self.created,
                arrivals=self.arrivals,
                began_ns=self.began_ns,
                now_ns=self.now_ns,
                open_intents={
                    context: sorted(intents.items(), key=itemgetter(0))
                    for context, intents in self.open_intents.items()
                    if intents
                },
                early_outcomes={context: sorted(seqs.items()) for context, seqs in self.early_outcomes.items() if seqs},
                desired_states=sorted(
                    (
                        (context, desired_state.seq, desired_state.intent)
                        for desired_states in self.desired_states.values()
                        for (context, _group), desired_state in desired_states.items()
                    ),
                    key=itemgetter(0, 1),
                ),
            )
        )

    def restore(self, data: bytes) -> None:
        """Takes over a stored State."""
        stored = _DECODER.decode(data)
        for name in ("positions", "cluster", "created", "arrivals", "began_ns", "now_ns"):
            setattr(self, name, getattr(stored, name))
        for resource, objects in stored.objects.items():
            kind = KINDS.get(resource)
            self.objects[resource] = msgspec.convert(objects, dict[str, kind]) if kind else objects  # type: ignore[valid-type]
        for key, pod in self.pods().items():
            self.pods_on.setdefault(pod.spec.node_name, {})[key] = None
        self.pods_on.pop("", None)
        self.open_intents = {context: dict(intents) for context, intents in stored.open_intents.items()}
        self.early_outcomes = {context: dict(seqs) for context, seqs in stored.early_outcomes.items()}
        for context, seq, intent in stored.desired_states:
            group = self.desired_states.setdefault((intent.resource, intent.name), {})
            group[context, fields_of(intent)] = DesiredState(seq, intent)
            self._objects_by_seq[context, seq] = (intent.resource, intent.name)

    def _apply_observation(self, event: Event) -> None:
        match event:
            case ClusterIdentified(cluster=cluster):
                self.cluster = cluster
            case PodObserved(pod=key, object=pod):
                self._store_pod(key, pod)
            case PodDeleted(pod=key):
                self._remove_from_node(self._store(PODS.name, key, None))
            case NodeObserved(node=key, object=node):
                self._store(NODES.name, key, node)
            case NodeDeleted(node=key):
                self._store(NODES.name, key, None)
            case NodeMetricObserved(node=key, object=report):
                self._store(NODE_METRICS.name, key, report)
            case NodeMetricDeleted(node=key):
                self._store(NODE_METRICS.name, key, None)
            case ObjectObserved(resource=resource, name=key, object=body):
                self._store(resource, key, body)
            case ObjectDeleted(resource=resource, name=key):
                self._store(resource, key, None)

    def _store(self, resource: str, key: str, new: Object | None) -> Object | None:
        """Replaces or removes an object. Returns the previous one."""
        objects = self.objects.setdefault(resource, {})
        before = objects.pop(key, None) if new is None else objects.get(key)
        if new is not None:
            objects[key] = new
            self.created += before is None or uid_of(before) != uid_of(new)
        return before

    def _store_pod(self, key: str, pod: Pod) -> None:
        before = self._store(PODS.name, key, pod)
        if not isinstance(before, Pod):
            number = (pod.metadata.annotations or {}).get(ARRIVAL)
            if number is not None:
                self.arrivals = max(self.arrivals, int(number) + 1)
                self.began_ns = self.began_ns or instant_ns(pod.metadata.creation_timestamp or "")
        elif before.spec.node_name != pod.spec.node_name:
            self._remove_from_node(before)
        if pod.spec.node_name:
            self.pods_on.setdefault(pod.spec.node_name, {})[key] = None

    def _remove_from_node(self, pod: Object | None) -> None:
        there = self.pods_on.get(pod.spec.node_name) if isinstance(pod, Pod) else None
        if there and isinstance(pod, Pod):
            there.pop(pod.metadata.key, None)
            if not there:
                del self.pods_on[pod.spec.node_name]

    def _apply_intent(self, context: str, seq: int, intent: Intent) -> None:
        is_applied = self.early_outcomes.get(context, {}).pop(seq, None)
        if is_applied is None:
            self.open_intents.setdefault(context, {})[seq] = intent
        # A refused desired state is open until its outcome is recorded, and never in force.
        if isinstance(intent, FieldsDesired | ObjectDesired) and not self.refusal(context, intent):
            place, group = (intent.resource, intent.name), (context, fields_of(intent))
            older = self.desired_states.get(place, {}).get(group)
            if older:
                self._end_desired_state(context, older.seq)
            if is_applied is not False:
                self.desired_states.setdefault(place, {})[group] = DesiredState(seq, intent)
                self._objects_by_seq[context, seq] = place

    def _apply_outcome(self, cause: Cause | None, *, is_applied: bool) -> None:
        if cause is None:
            return
        context, seq = cause.context, cause.seq
        if seq > self.positions.get(context, 0):
            early_outcomes = self.early_outcomes.setdefault(context, {})
            early_outcomes[seq] = early_outcomes.get(seq, True) and is_applied
            return
        self.open_intents.get(context, {}).pop(seq, None)
        if not is_applied:
            self._end_desired_state(context, seq)

    def _end_desired_state(self, context: str, seq: int) -> None:
        place = self._objects_by_seq.pop((context, seq), None)
        if place is not None:
            desired_states = self.desired_states[place]
            for group in [
                group
                for group, desired_state in desired_states.items()
                if group[0] == context and desired_state.seq == seq
            ]:
                del desired_states[group]
            if not desired_states:
                del self.desired_states[place]


def fields_of(intent: FieldsDesired | ObjectDesired) -> str:
    """Returns the field group of a desired state; empty for the whole object."""
    return intent.fields if isinstance(intent, FieldsDesired) else ""


def uid_of(stored: Object) -> str:
    """Returns the uid of an object."""
    return str(stored["metadata"].get("uid", "")) if isinstance(stored, dict) else stored.metadata.uid


KINDS: Mapping[str, type[Pod] | type[Node] | type[NodeMetric]] = {
    PODS.name: Pod,
    NODES.name: Node,
    NODE_METRICS.name: NodeMetric,
}
"""Resources with typed objects; the objects of all others are plain JSON."""
