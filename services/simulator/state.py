"""The cluster in memory: a fold over what was said of it in `cluster`, and the intents of others that are not answered yet.

There is no second copy. What the simulator's API reads is this State, what it writes are events, and after a restart the
cluster is there again because its log is.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec

from services.simulator.api.resource_kinds import NODE_METRICS, NODES, PODS
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    OUTCOMES,
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
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import instant_ns
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod

Object = Pod | Node | NodeMetric | dict[str, Any]
"""An object as its events hold it."""

Intent = PodPlaced | PodUnschedulable | EvictionRequested | FieldsDesired | ObjectDesired


class _Stored(msgspec.Struct):
    """What `encode` writes."""

    positions: dict[str, int]
    objects: dict[str, dict[str, Any]]
    created: int
    arrivals: int
    began_ns: int
    now_ns: int
    open: dict[str, list[tuple[int, Intent]]]
    early: dict[str, list[tuple[int, bool]]]
    levels: list[tuple[str, int, FieldsDesired | ObjectDesired]]


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)

ANY_INTENTS = (EvictionRequested, FieldsDesired, ObjectDesired)
"""Intents that every context may append."""

INTENTS = (PodPlaced, PodUnschedulable, *ANY_INTENTS)

ARRIVAL = "simulator.koordinator.sh/arrival"
"""Annotation of a generated pod: its number, from 0."""


class Level(NamedTuple):
    """A level in force: the newest of its field group, and its place in its log."""

    seq: int
    intent: FieldsDesired | ObjectDesired


class SimulatorState:
    """The cluster, and what is to be done in it.

    Attributes:
        objects: resource -> key -> object.
        pods_on: node -> keys of the pods bound to it; follows from `objects`.
        created: how many objects there have been, which makes the next uid.
        arrivals: how many generated pods there have been; began_ns is when the first of them was created.
        now_ns: the newest instant that this log was written at.
        open: context -> seq -> intent without an outcome.
        early: context -> seq -> whether the level stands, for outcomes heard before their intent.
        levels: (resource, name) -> (context, field group) -> the level in force.
    """

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.objects: dict[str, dict[str, Object]] = {}
        self.pods_on: dict[str, dict[str, None]] = {}
        self.created = 0
        self.arrivals = 0
        self.began_ns = 0
        self.now_ns = 0
        self.open: dict[str, dict[int, Intent]] = {}
        self.early: dict[str, dict[int, bool]] = {}
        self.levels: dict[tuple[str, str], dict[tuple[str, str], Level]] = {}
        self._places: dict[tuple[str, int], tuple[str, str]] = {}  # of the levels, by context and seq

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event of `cluster` or of a context with intents."""
        event = record.event
        if record.context == "cluster":
            if event.now_ns is not None and event.now_ns > self.now_ns:
                self.now_ns = event.now_ns
            if isinstance(event, OUTCOMES):
                self._answered(record.cause, stands=isinstance(event, DesiredStateApplied))
            else:
                self._observed(event)
        elif isinstance(event, INTENTS):
            self._intended(record.context, record.seq, event)
        self.positions[record.context] = record.seq

    def pods(self) -> Mapping[str, Pod]:
        """The pods, by `namespace/name`."""
        return self.objects.get(PODS.name, {})  # type: ignore[return-value]  # PodObserved holds nothing else

    def nodes(self) -> Mapping[str, Node]:
        """The nodes, by name."""
        return self.objects.get(NODES.name, {})  # type: ignore[return-value]  # NodeObserved holds nothing else

    def node_metrics(self) -> Mapping[str, NodeMetric]:
        """The NodeMetrics, by node."""
        return self.objects.get(NODE_METRICS.name, {})  # type: ignore[return-value]  # NodeMetricObserved holds nothing else

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                positions={context: seq for context, seq in self.positions.items() if seq},
                objects={resource: objects for resource, objects in self.objects.items() if objects},
                created=self.created,
                arrivals=self.arrivals,
                began_ns=self.began_ns,
                now_ns=self.now_ns,
                open={
                    context: sorted(intents.items(), key=itemgetter(0))
                    for context, intents in self.open.items()
                    if intents
                },
                early={context: sorted(seqs.items()) for context, seqs in self.early.items() if seqs},
                levels=sorted(
                    (
                        (context, level.seq, level.intent)
                        for levels in self.levels.values()
                        for (context, _group), level in levels.items()
                    ),
                    key=itemgetter(0, 1),
                ),
            )
        )

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        stored = _DECODER.decode(data)
        for name in ("positions", "created", "arrivals", "began_ns", "now_ns"):
            setattr(self, name, getattr(stored, name))
        for resource, objects in stored.objects.items():
            kind = KINDS.get(resource)
            self.objects[resource] = msgspec.convert(objects, dict[str, kind]) if kind else objects  # type: ignore[valid-type]
        for key, pod in self.pods().items():
            self.pods_on.setdefault(pod.spec.node_name, {})[key] = None
        self.pods_on.pop("", None)
        self.open = {context: dict(intents) for context, intents in stored.open.items()}
        self.early = {context: dict(seqs) for context, seqs in stored.early.items()}
        for context, seq, intent in stored.levels:
            group = self.levels.setdefault((intent.resource, intent.name), {})
            group[context, fields_of(intent)] = Level(seq, intent)
            self._places[context, seq] = (intent.resource, intent.name)

    def _observed(self, event: Event) -> None:
        match event:
            case PodObserved(pod=key, object=pod):
                self._keep_pod(key, pod)
            case PodDeleted(pod=key):
                self._leave(self._keep(PODS.name, key, None))
            case NodeObserved(node=key, object=node):
                self._keep(NODES.name, key, node)
            case NodeDeleted(node=key):
                self._keep(NODES.name, key, None)
            case NodeMetricObserved(node=key, object=report):
                self._keep(NODE_METRICS.name, key, report)
            case NodeMetricDeleted(node=key):
                self._keep(NODE_METRICS.name, key, None)
            case ObjectObserved(resource=resource, name=key, object=body):
                self._keep(resource, key, body)
            case ObjectDeleted(resource=resource, name=key):
                self._keep(resource, key, None)

    def _keep(self, resource: str, key: str, new: Object | None) -> Object | None:
        """Put an object in the place of the one before, which is returned."""
        objects = self.objects.setdefault(resource, {})
        before = objects.pop(key, None) if new is None else objects.get(key)
        if new is not None:
            objects[key] = new
            self.created += before is None or uid_of(before) != uid_of(new)
        return before

    def _keep_pod(self, key: str, pod: Pod) -> None:
        before = self._keep(PODS.name, key, pod)
        if not isinstance(before, Pod):
            number = (pod.metadata.annotations or {}).get(ARRIVAL)
            if number is not None:
                self.arrivals = max(self.arrivals, int(number) + 1)
                self.began_ns = self.began_ns or instant_ns(pod.metadata.creation_timestamp or "")
        elif before.spec.node_name != pod.spec.node_name:
            self._leave(before)
        if pod.spec.node_name:
            self.pods_on.setdefault(pod.spec.node_name, {})[key] = None

    def _leave(self, pod: Object | None) -> None:
        there = self.pods_on.get(pod.spec.node_name) if isinstance(pod, Pod) else None
        if there and isinstance(pod, Pod):
            there.pop(pod.metadata.key, None)
            if not there:
                del self.pods_on[pod.spec.node_name]

    def _intended(self, context: str, seq: int, intent: Intent) -> None:
        stands = self.early.get(context, {}).pop(seq, None)
        if stands is None:
            self.open.setdefault(context, {})[seq] = intent
        if isinstance(intent, FieldsDesired | ObjectDesired):
            place, group = (intent.resource, intent.name), (context, fields_of(intent))
            older = self.levels.get(place, {}).get(group)
            if older:
                self._end_level(context, older.seq)
            if stands is not False:
                self.levels.setdefault(place, {})[group] = Level(seq, intent)
                self._places[context, seq] = place

    def _answered(self, cause: Cause | None, *, stands: bool) -> None:
        if cause is None:
            return
        context, seq = cause.context, cause.seq
        if seq > self.positions.get(context, 0):
            early = self.early.setdefault(context, {})
            early[seq] = early.get(seq, True) and stands
            return
        self.open.get(context, {}).pop(seq, None)
        if not stands:
            self._end_level(context, seq)

    def _end_level(self, context: str, seq: int) -> None:
        place = self._places.pop((context, seq), None)
        if place is not None:
            levels = self.levels[place]
            for group in [group for group, level in levels.items() if group[0] == context and level.seq == seq]:
                del levels[group]
            if not levels:
                del self.levels[place]


def fields_of(intent: FieldsDesired | ObjectDesired) -> str:
    """The field group that a level is about; the whole object's is empty."""
    return intent.fields if isinstance(intent, FieldsDesired) else ""


def uid_of(held: Object) -> str:
    """The uid of an object."""
    return str(held["metadata"].get("uid", "")) if isinstance(held, dict) else held.metadata.uid


KINDS: Mapping[str, type[Pod] | type[Node] | type[NodeMetric]] = {
    PODS.name: Pod,
    NODES.name: Node,
    NODE_METRICS.name: NodeMetric,
}
"""Resources whose objects are typed; those of all others are plain JSON."""
