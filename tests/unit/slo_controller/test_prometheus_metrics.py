"""Prometheus metrics have the names and labels of upstream's koord-manager."""

from prometheus_client import CollectorRegistry, generate_latest

from services.slo_controller.prometheus_metrics import ReconcileMetrics
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.cluster import DesiredStateApplied, DesiredStateRejected
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.slo import NodeOvercommitted
from shared.kube.resource_names import NODE_SLOS
from tests.support.slo_cluster import Cluster

G = 10**9


class Watched:
    """A cluster whose decisions are counted."""

    def __init__(self, most_nodes: int = 10) -> None:
        self.cluster = Cluster()
        self.registry = CollectorRegistry()
        self.exported = ReconcileMetrics(lambda: self.cluster.state.decided, most_nodes, self.registry)
        self.outcomes = 0

    def decide(self, at_s: float) -> list[RecordedEvent]:
        made = dict.fromkeys(self.cluster.state.node_slos)
        before = len(self.cluster.records)
        self.cluster.decide(at_s)
        appended = [each for each in self.cluster.records[before:] if each.context == "slo"]
        self.exported.count_documents([Draft(each.event) for each in appended], self.cluster.state.texts)
        self.exported.count_appended(appended, made)
        return appended

    def answer(self, intent: RecordedEvent, *, ok: bool = True, context: str = "slo") -> None:
        event = intent.event
        assert isinstance(event, (FieldsDesired, ObjectDesired))
        self.outcomes += 1
        what: Event = (
            DesiredStateApplied(resource=event.resource, name=event.name)
            if ok
            else DesiredStateRejected(resource=event.resource, name=event.name, reason="no")
        )
        self.exported.count_outcome(RecordedEvent("cluster", self.outcomes, what, 0, Cause(context, intent.seq)))

    def lines(self, name: str) -> set[str]:
        text = generate_latest(self.registry).decode()
        return {line.removeprefix(name) for line in text.splitlines() if line.startswith(name)}


def appended_by_first_decision(watched: Watched) -> list[RecordedEvent]:
    cluster = watched.cluster
    cluster.configure(threshold_config={})
    cluster.node()
    cluster.pod("web", cpu="40", memory="60G")
    cluster.report(30, {"web": (33_000, 33 * G)}, system=(7_000, 12 * G))
    return watched.decide(31)


def test_a_write_counts_with_its_outcome() -> None:
    watched = Watched()
    appended = appended_by_first_decision(watched)
    name = "slo_controller_node_resource_reconcile_count"
    assert watched.lines(name) == set(), "nothing is written yet"
    writes = [each for each in appended if isinstance(each.event, FieldsDesired)]
    watched.answer(writes[0], context="metrics-0")
    assert watched.lines(name) == set(), "the outcome of another's write"
    watched.answer(writes[0])
    watched.answer(writes[1], ok=False)
    assert watched.lines(name) == {
        '{reason="updateNodeStatus",status="succeeded"} 1.0',
        '{reason="patchNodeMeta",status="failed"} 1.0',
    }
    watched.answer(writes[0])
    assert '{reason="updateNodeStatus",status="succeeded"} 1.0' in watched.lines(name), "an outcome counts once"


def test_a_nodeslo_is_created_updated_and_deleted() -> None:
    watched = Watched()
    for intent in appended_by_first_decision(watched):
        if isinstance(intent.event, ObjectDesired) and intent.event.resource == NODE_SLOS:
            watched.answer(intent)
    cluster = watched.cluster
    cluster.state.node_slos["n"] = {}
    cluster.configure(resource_threshold_config={"clusterStrategy": {"enable": True}})
    (update,) = [each for each in watched.decide(32) if isinstance(each.event, ObjectDesired)]
    watched.answer(update)
    assert watched.lines("slo_controller_nodeslo_reconcile_count") == {
        '{reason="createNodeSLO",status="succeeded"} 1.0',
        '{reason="updateNodeSLO",status="succeeded"} 1.0',
    }


def test_documents_count_as_applied_or_rejected() -> None:
    watched = Watched()
    watched.cluster.configure(resource_qos_config={"clusterStrategy": {"lsClass": {"cpuQOS": {"groupIdentity": 9}}}})
    watched.decide(1)
    assert watched.lines("slo_controller_nodemetric_spec_parse_count") == {
        '{reason="getNodeMetricCollectPolicy",status="succeeded"} 1.0'
    }
    assert watched.lines("slo_controller_nodeslo_spec_parse_count") == {
        '{reason="getResourceQOSSpec",status="failed"} 1.0'
    }


def test_a_plugin_that_met_a_problem_counts_with_its_stage() -> None:
    watched = Watched()
    cluster = watched.cluster
    cluster.configure(cpu_normalization_config={"enable": True})
    cluster.node(annotations={"node.koordinator.sh/thirdPartyAllocations": "{"})
    cluster.report(30, {}, system=(7_000, 12 * G))
    watched.decide(31)
    lines = watched.lines("slo_controller_node_resource_run_plugin_status")
    assert len(lines) == 6
    assert '{plugin="BatchResource",reason="NodePrepare",status="failed"} 1.0' in lines
    assert '{plugin="CPUNormalization",reason="ResourceCalculate",status="failed"} 1.0' in lines
    assert '{plugin="MidResource",reason="ResourceCalculate",status="succeeded"} 1.0' in lines


def test_amounts_are_exported_in_upstreams_units_while_the_node_is_overcommitted() -> None:
    watched = Watched()
    appended_by_first_decision(watched)
    name = "slo_controller_node_extended_resource_allocatable_internal"
    lines = watched.lines(name)
    assert '{node="n",resource="kubernetes.io/batch-cpu",unit="integer"} 25.0' in lines
    assert '{node="n",resource="kubernetes.io/batch-memory",unit="byte"} 3.3e+10' in lines
    assert len(lines) == 4
    watched.decide(3_000)
    assert isinstance(watched.cluster.state.decided["n"], NodeOvercommitted)
    assert watched.lines(name) == set(), "no report, nothing to sell"


def test_a_large_cluster_has_no_series_per_node() -> None:
    watched = Watched(most_nodes=0)
    appended_by_first_decision(watched)
    assert watched.lines("slo_controller_node_extended_resource_allocatable_internal{") == set()
