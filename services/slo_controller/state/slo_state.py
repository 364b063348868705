"""What over-commitment rests on: nodes, the pods on them, what was measured, the configuration, and what was decided before.

`cluster`, `metrics-*` and `slo` write fields of their own. What needs two of them (which pods were on a node when its report was made) is
computed when it is asked for, and remembered in caches that are no part of the State.
"""

from typing import Any, ClassVar, NamedTuple

import msgspec

from services.slo_controller.node_topology.zone_resources import has_zones
from services.slo_controller.overcommit.node_reservation import capacity_of, reserved_of
from services.slo_controller.overcommit.usage_sums import Books, add_up
from services.slo_controller.state.node_usage import NOTHING, Measured, of_report, of_status
from services.slo_controller.state.pod_occupancy import Seat, Seats
from shared.domain.cpu_memory import Amount
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    InitialListCompleted,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.events.nodes import NodeTopologyRemoved, NodeTopologyReported
from shared.events.slo import NodeOvercommitted, RecommendationEnded, RecommendationUpdated
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetricSpec, NodeStatus
from shared.kube.node_resource_topology import Zone
from shared.kube.resource_names import DEVICES, NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES, RECOMMENDATIONS

NODES = "nodes"
CONFIG_MAP = "koordinator-system/slo-controller-config"

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, InitialListCompleted,
    ),
    "metrics-*": (NodeReported, NodeReportsExpired),
    "nodes-*": (NodeTopologyReported, NodeTopologyRemoved),
    "slo": (
        ConfigApplied, ConfigRejected, NodeOvercommitted, RecommendationUpdated, RecommendationEnded, FieldsDesired, ObjectDesired,
    ),
}  # fmt: skip
"""Context -> event types folded; the others pass."""

GONE = "gone"
"""`why` of a NodeOvercommitted that says that a node is there no longer."""


class Topology(NamedTuple):
    """A node's NodeResourceTopology: annotations, labels, policies, and zones as the API has them."""

    annotations: dict[str, str]
    zones: list[dict[str, Any]]
    labels: dict[str, str] = {}  # noqa: RUF012  a default that nobody writes to
    policies: tuple[str, ...] = ()


class Said(NamedTuple):
    """What we last said that a field group must be, and up to where we had read `cluster` then."""

    seen: int
    value: dict[str, Any]


class Machine(NamedTuple):
    """What of a node counts here, read once.

    Attributes:
        is_reported: whether the status has capacity and allocatable; before that nothing is written to the node.
    """

    metadata: Metadata
    is_reported: bool
    capacity: Amount
    reserved: Amount


class SloState:
    """A fold over `cluster`, `metrics-*` and our own `slo`.

    Attributes:
        nodes: name -> the node, without conditions and images.
        seats: the pods on nodes, also those that went lately.
        objects: node -> what its NodeMetric object says.
        reports: node -> its newest report; heard: node -> the newest instant that it ever reported.
        metric_specs: node -> spec of its NodeMetric; present exactly while the object is.
        slos: node -> spec of its NodeSLO; present exactly while the object is.
        topologies, devices: node -> those objects.
        stated: node -> what its agent stated of its topology.
        config_data: data of the ConfigMap as it was seen last; None before it was seen.
        listed: whether everything has been listed once.
        texts: documents in force; config: their digest, empty before any were taken; refused: digest of the data refused last.
        decided: node -> what we said of it last.
        written: place -> field group -> what we last said it must be; saw: up to where we had read `cluster` for our last append.
        gone_at: place -> `cluster` seq at which the object there went last: what was said of it before ended then.
        recommendations: `namespace/name` -> `spec.target` of a Recommendation; recommended: what we said of it last.
        changed: what follows from the above: the nodes of which something changed since they were looked at.
    """

    SCHEMA: ClassVar[int] = 3

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.seats = Seats()
        self.objects: dict[str, Measured] = {}
        self.reports: dict[str, Measured] = {}
        self.heard: dict[str, int] = {}
        self.metric_specs: dict[str, NodeMetricSpec] = {}
        self.slos: dict[str, dict[str, Any]] = {}
        self.topologies: dict[str, Topology] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self.stated: dict[str, NodeTopologyReported] = {}
        self.config_data: dict[str, str] | None = None
        self.listed = False
        self.texts: dict[str, str] = {}
        self.config = ""
        self.refused = ""
        self.decided: dict[str, NodeOvercommitted] = {}
        self.written: dict[str, dict[str, Said]] = {}
        self.recommendations: dict[str, dict[str, Any]] = {}
        self.recommended: dict[str, RecommendationUpdated] = {}
        self.saw = 0
        self.gone_at: dict[str, int] = {}
        self.changed: dict[str, None] = {}
        self._books: dict[str, Books] = {}
        self._machines: dict[str, Machine] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event."""
        if record.context == "cluster":
            self._seen(record)
        elif record.context == "slo":
            self._said(record)
        else:
            self._reported(record.event)
        self.positions[record.context] = record.seq

    def _seen(self, record: RecordedEvent) -> None:
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._joined_anew(self.seats.observed(record.at_ns, uid, pod))
            case PodDeleted(pod_uid=uid):
                self._joined_anew(self.seats.left(record.at_ns, uid))
            case NodeMetricObserved(node=node, object=metric):
                self.metric_specs[node] = metric.spec
                self.objects[node] = of_status(metric.status)
                self._joined_anew(node)
            case NodeMetricDeleted(node=node):
                self.metric_specs.pop(node, None)
                self.objects.pop(node, None)
                self.gone_at[place_of(NODE_METRICS, node)] = record.seq
                self._joined_anew(node)
            case NodeObserved(node=name, object=node):
                status = NodeStatus(capacity=node.status.capacity, allocatable=node.status.allocatable)
                self.nodes[name] = Node(metadata=node.metadata, status=status)
                self._touch(name)
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
                self.gone_at[place_of(NODES, name)] = record.seq
                self._touch(name)
            case ObjectObserved() as event:
                self._object(event)
            case ObjectDeleted(resource=resource, name=name):
                self._object_gone(resource, name, record.seq)
            case InitialListCompleted():
                self.listed = True

    def _reported(self, event: Event) -> None:
        match event:
            case NodeReported(node=node, at_ns=at_ns):
                if at_ns >= self.heard.get(node, 0):
                    self.reports[node], self.heard[node] = of_report(event), at_ns
                    self._joined_anew(node)
            case NodeReportsExpired(node=node, at_ns=at_ns):
                if node in self.reports and self.reports[node].at_ns <= at_ns:
                    del self.reports[node]
                    self._joined_anew(node)
            case NodeTopologyReported(node=node):
                self.stated[node] = event
                self._touch(node)
            case NodeTopologyRemoved(node=node):
                self.stated.pop(node, None)
                self._touch(node)

    def _said(self, record: RecordedEvent) -> None:
        event = record.event
        if event.seen:
            self.saw = event.seen.get("cluster", 0)
        match event:
            case ConfigApplied(text=text, digest=digest):
                self.texts, self.config, self.refused = msgspec.json.decode(text), digest, ""
                self._touch_all()
            case ConfigRejected(digest=digest):
                self.refused = digest
            case NodeOvercommitted(node=name, why=why):
                self.decided[name] = event
                if why == GONE:
                    del self.decided[name]
                    for resource in (NODES, NODE_METRICS, NODE_TOPOLOGIES):
                        self.written.pop(place_of(resource, name), None)
            case RecommendationUpdated(name=name):
                self.recommended[name] = event
            case RecommendationEnded(name=name):
                self.recommended.pop(name, None)
                self.written.pop(place_of(RECOMMENDATIONS, name), None)
            case FieldsDesired(resource=resource, name=name, fields=fields, patch=patch):
                self.written.setdefault(place_of(resource, name), {})[fields] = Said(self.saw, patch)
            case ObjectDesired(resource=resource, name=name, body=body):
                if body is None:
                    self.written.pop(place_of(resource, name), None)
                else:
                    self.written.setdefault(place_of(resource, name), {})[""] = Said(self.saw, body)

    def says(self, resource: str, name: str, fields: str = "") -> dict[str, Any] | None:
        """What we have said that a field group of the object that is there must be; None: nothing yet."""
        place = place_of(resource, name)
        said = self.written.get(place, {}).get(fields)
        return None if said is None or self.gone_at.get(place, 0) > said.seen else said.value

    def measured(self, node: str) -> tuple[Measured, str]:
        """What counts as measured of a node, and whose report it is: the newest by the data's own time.

        Host applications and what is predicted come from the NodeMetric object where the report does not tell of them.
        """
        report, object_ = self.reports.get(node), self.objects.get(node)
        if report is None:
            return (object_, "NodeMetric") if object_ is not None and object_.at_ns else (NOTHING, "")
        if object_ is None:
            return report, "metrics"
        if object_.at_ns > report.at_ns:
            return object_, "NodeMetric"
        if not report.tells_applications:
            report = report._replace(applications=object_.applications)
        if not report.tells_reclaimable:
            report = report._replace(reclaimable=object_.reclaimable)
        return report, "metrics"

    def zones(self, node: str) -> tuple[Zone, ...]:
        """The NUMA zones that a node's topology lists with cpu or memory."""
        topology = self.topologies.get(node)
        return msgspec.convert(topology.zones, tuple[Zone, ...]) if topology and has_zones(topology.zones) else ()

    def books(self, node: str) -> Books:
        """A node's sums, over the pods that were there at the instant of its report."""
        books = self._books.get(node)
        if books is None:
            measured, _ = self.measured(node)
            zones = len(self.zones(node))
            books = self._books[node] = add_up(self.seats.as_of(node, measured.at_ns), measured, zones)
        return books

    def machine(self, name: str) -> Machine:
        """A node's capacity and what it keeps for itself."""
        machine = self._machines.get(name)
        if machine is None:
            node = self.nodes[name]
            is_reported = node.status.capacity is not None and node.status.allocatable is not None
            machine = Machine(node.metadata, is_reported, capacity_of(node), reserved_of(node))
            self._machines[name] = machine
        return machine

    def _object(self, event: ObjectObserved) -> None:
        resource, name, body = event.resource, event.name, event.object
        if resource == "configmaps":
            if name == CONFIG_MAP:
                self.config_data = {key: str(text) for key, text in (body.get("data") or {}).items()}
        elif resource == NODE_SLOS:
            self.slos[name] = body.get("spec") or {}
            self._touch(name)
        elif resource == NODE_TOPOLOGIES:
            meta = body.get("metadata") or {}
            self.topologies[name] = Topology(
                meta.get("annotations") or {},
                body.get("zones") or [],
                meta.get("labels") or {},
                tuple(body.get("topologyPolicies") or ()),
            )
            self._joined_anew(name)
        elif resource == RECOMMENDATIONS:
            self.recommendations[name] = (body.get("spec") or {}).get("target") or {}
        elif resource == DEVICES:
            self.devices[name] = {
                "metadata": {"labels": (body.get("metadata") or {}).get("labels") or {}},
                "spec": body.get("spec") or {},
            }
            self._touch(name)

    def _object_gone(self, resource: str, name: str, seq: int) -> None:
        if resource == RECOMMENDATIONS:
            self.recommendations.pop(name, None)
            self.gone_at[place_of(resource, name)] = seq
            return
        if resource == NODE_SLOS:
            self.slos.pop(name, None)
        elif resource == NODE_TOPOLOGIES:
            self.topologies.pop(name, None)
            self._books.pop(name, None)
        elif resource == DEVICES:
            self.devices.pop(name, None)
        else:
            return
        self.gone_at[place_of(resource, name)] = seq
        self._touch(name)

    def _joined_anew(self, node: str) -> None:
        """Forget a node's sums: a pod came or went, or there is a newer report. Nothing to forget without a node."""
        if not node:
            return
        self._books.pop(node, None)
        self._touch(node)

    def _touch(self, node: str) -> None:
        self._machines.pop(node, None)
        self.changed[node] = None

    def _touch_all(self) -> None:
        for node in (*self.nodes, *self.slos):
            self.changed[node] = None

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        seats = {"seats": self.seats.by_uid, "gone": list(self.seats.gone)}
        return _ENCODER.encode({name: getattr(self, name) for name in _FIELDS} | seats)

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        stored = _DECODER.decode(data)
        for name in _FIELDS:
            setattr(self, name, getattr(stored, name))
        self.seats.restore(stored.seats, stored.gone)
        self._touch_all()


_FIELDS = (
    "positions", "nodes", "objects", "reports", "heard", "metric_specs", "slos", "topologies", "devices", "stated",
    "config_data", "listed", "texts", "config", "refused", "decided", "written", "recommendations", "recommended", "saw", "gone_at",
)  # fmt: skip


class _Stored(msgspec.Struct):
    """What `encode` writes."""

    positions: dict[str, int]
    nodes: dict[str, Node]
    seats: dict[str, Seat]
    gone: list[str]
    objects: dict[str, Measured]
    reports: dict[str, Measured]
    heard: dict[str, int]
    metric_specs: dict[str, NodeMetricSpec]
    slos: dict[str, dict[str, Any]]
    topologies: dict[str, Topology]
    devices: dict[str, dict[str, Any]]
    stated: dict[str, NodeTopologyReported]
    config_data: dict[str, str] | None
    listed: bool
    texts: dict[str, str]
    config: str
    refused: str
    decided: dict[str, NodeOvercommitted]
    written: dict[str, dict[str, Said]]
    recommendations: dict[str, dict[str, Any]]
    recommended: dict[str, RecommendationUpdated]
    saw: int
    gone_at: dict[str, int]


_ENCODER = msgspec.json.Encoder(order="sorted")  # amounts in nanos outgrow the 64 bits of other encodings
_DECODER = msgspec.json.Decoder(_Stored)


def place_of(resource: str, name: str) -> str:
    """The key of an object."""
    return f"{resource} {name}"
