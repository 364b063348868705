"""Prometheus metrics under the names that dashboards for koord-manager use.

Counters follow recorded events: a reconcile succeeds or fails by the gateway's outcome, and a plugin counts with each
recorded decision. Names have no suffix `_total`, as upstream's.

Source: spec/slo-controller.md 12; upstream pkg/slo-controller/metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.slo_controller.decide import AMOUNTS, METADATA, SPEC
from services.slo_controller.node_topology.topology_objects import ZONES
from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.explain import bounded
from services.slo_controller.overcommit.noderesource_plugin_problems import CALCULATE, PLUGINS
from services.slo_controller.state.slo_state import NODES
from shared.admission.slo_config.document_validation import (
    BURST,
    COLOCATION,
    HOST_APPLICATIONS,
    INTERFERENCE,
    QOS,
    SYSTEM,
    THRESHOLD,
)
from shared.events import Draft, RecordedEvent
from shared.events.cluster import DesiredStateApplied, DesiredStateFailed, DesiredStateRejected, MissingPermission
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.slo import NodeOvercommitted
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES

SUCCEEDED, FAILED = "succeeded", "failed"
CONTEXT = "slo"

_NODE, _METRIC, _SLO = (f"slo_controller_{kind}_reconcile_count" for kind in ("node_resource", "nodemetric", "nodeslo"))
_METRIC_SPEC, _SLO_SPEC = (f"slo_controller_{kind}_spec_parse_count" for kind in ("nodemetric", "nodeslo"))
_PLUGINS = "slo_controller_node_resource_run_plugin_status"
_ALLOCATABLE = "slo_controller_node_extended_resource_allocatable_internal"

_COUNTS = {
    _NODE: "Writes of nodes and their topologies that ended, by what was written",
    _METRIC: "Writes of NodeMetrics that ended, by operation",
    _METRIC_SPEC: "Documents about NodeMetrics that were applied or rejected",
    _SLO: "Writes of NodeSLOs that ended, by operation",
    _SLO_SPEC: "Documents about NodeSLOs that were applied or rejected",
    _PLUGINS: "Recorded decisions about nodes, by plugin",
}
_OF_FIELDS = {
    (NODES, AMOUNTS): (_NODE, "updateNodeStatus"),
    (NODES, METADATA): (_NODE, "patchNodeMeta"),
    (NODE_TOPOLOGIES, ZONES): (_NODE, "updateNodeResourceTopology"),
    (NODE_METRICS, SPEC): (_METRIC, "updateNodeMetric"),
}
_OF_OBJECTS = {NODE_METRICS: (_METRIC, "NodeMetric"), NODE_SLOS: (_SLO, "NodeSLO")}
_OF_KEYS = {
    COLOCATION: (_METRIC_SPEC, "getNodeMetricCollectPolicy"),
    THRESHOLD: (_SLO_SPEC, "getResourceThresholdSpec"),
    QOS: (_SLO_SPEC, "getResourceQOSSpec"),
    BURST: (_SLO_SPEC, "getCPUBurstConfigSpec"),
    SYSTEM: (_SLO_SPEC, "getSystemConfigSpec"),
    HOST_APPLICATIONS: (_SLO_SPEC, "getHostApplicationConfig"),
    INTERFERENCE: (_SLO_SPEC, "getExtensionsConfigSpec"),
}

Outcome = DesiredStateApplied | DesiredStateRejected | DesiredStateFailed | MissingPermission
OUTCOMES = (DesiredStateApplied, DesiredStateRejected, DesiredStateFailed, MissingPermission)
"""Outcomes of the writes that are counted here."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""


class ReconcileMetrics(Collector):
    """Counters of the controller, and one series per node, computed when Prometheus reads them."""

    def __init__(
        self, decided: Callable[[], Mapping[str, NodeOvercommitted]], most_nodes: int, registry: CollectorRegistry
    ) -> None:
        """Registers the metrics.

        Args:
            decided: returns node -> its newest decision.
            most_nodes: with more nodes there are no series per node, since computing them would block the event loop.
        """
        self._decided = decided
        self._most_nodes = most_nodes
        self._counts: Counter[Series] = Counter()
        self._pending_writes: dict[
            int, tuple[str, str]
        ] = {}  # seq of a write on its way -> (name of the count, reason)
        registry.register(self)

    def count_appended(self, records: Sequence[RecordedEvent], made: Mapping[str, object]) -> None:
        """Counts appended events.

        Args:
            made: the NodeSLOs that existed before.
        """
        for record in records:
            event, seq = record.event, record.seq
            if isinstance(event, NodeOvercommitted):
                self._count_plugins(event)
            elif isinstance(event, FieldsDesired) and (event.resource, event.fields) in _OF_FIELDS:
                self._pending_writes[seq] = _OF_FIELDS[event.resource, event.fields]
            elif isinstance(event, ObjectDesired) and event.resource in _OF_OBJECTS:
                count, kind = _OF_OBJECTS[event.resource]
                verb = "delete" if event.body is None else "update" if event.name in made else "create"
                self._pending_writes[seq] = count, verb + kind

    def count_documents(self, drafts: list[Draft], texts: Mapping[str, str]) -> None:
        """Counts applied and rejected documents.

        Args:
            texts: the documents in force now.
        """
        rejected = {event.path.partition(":")[0] for each in drafts if isinstance(event := each.event, ConfigRejected)}
        applied = texts if any(isinstance(each.event, ConfigApplied) for each in drafts) else {}
        for key, (count, reason) in _OF_KEYS.items():
            if key in rejected:
                self._add(count, status=FAILED, reason=reason)
            elif key in applied:
                self._add(count, status=SUCCEEDED, reason=reason)

    def count_outcome(self, record: RecordedEvent) -> None:
        """Counts the outcome of a write by this context."""
        if not isinstance(record.event, OUTCOMES) or record.cause is None or record.cause.context != CONTEXT:
            return
        if (write := self._pending_writes.pop(record.cause.seq, None)) is not None:
            status = SUCCEEDED if isinstance(record.event, DesiredStateApplied) else FAILED
            self._add(write[0], status=status, reason=write[1])

    def collect(self) -> Iterator[Metric]:
        """Yields all series."""
        for name, text in _COUNTS.items():
            family = Metric(name, text, "untyped")
            for (each, labels), count in self._counts.items():
                if each == name:
                    family.add_sample(name, dict(labels), float(count))
            yield family
        allocatable = Metric(_ALLOCATABLE, "Batch and mid resources before amplification and third parties", "gauge")
        decided = self._decided()
        if len(decided) <= self._most_nodes:
            for node, event in decided.items():
                for resource, unit, amount in _node_amounts(event):
                    allocatable.add_sample(_ALLOCATABLE, {"node": node, "resource": resource, "unit": unit}, amount)
        yield allocatable

    def _count_plugins(self, event: NodeOvercommitted) -> None:
        for plugin in PLUGINS:
            stage = event.failed.get(plugin)
            status = SUCCEEDED if stage is None else FAILED
            self._add(_PLUGINS, plugin=plugin, status=status, reason=stage or CALCULATE)

    def _add(self, name: str, **labels: str) -> None:
        self._counts[name, tuple(labels.items())] += 1


def _node_amounts(event: NodeOvercommitted) -> Iterator[tuple[str, str, float]]:
    """Yields (resource, unit, amount) of a node; batch-cpu in cores and mid-cpu in milli-cores, as upstream has them."""
    if event.batch_cpu is not None:
        yield batch_resources.CPU, "integer", bounded(event.batch_cpu) / 1000
    if event.batch_memory is not None:
        yield batch_resources.MEMORY, "byte", float(bounded(event.batch_memory))
    if event.mid_cpu is not None:
        yield mid_resources.CPU, "integer", float(event.mid_cpu.amount)
    if event.mid_memory is not None:
        yield mid_resources.MEMORY, "byte", float(event.mid_memory.amount)
