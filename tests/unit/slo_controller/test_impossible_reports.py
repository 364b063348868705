"""A report that no measurement can give overcommits nothing: it counts as missing, nobody is evicted for it, and it is
named once.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from cli.node.ignored_reports import remedy_of
from services.slo_controller.state.slo_state import SloState
from services.slo_controller.state.usage_report import NO_REPORT, report_of_node_metric
from shared.events import Event
from shared.events.cluster import NodeDeleted, NodeMetricDeleted, NodeMetricObserved
from shared.events.intents import ObjectDesired
from shared.events.metrics import Usage, WindowUsage
from shared.events.slo import IgnoredReport, NodeReportsBelieved, NodeReportsIgnored
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import NodeMetric, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from shared.runtime.declared_intents import declared_refusal
from tests.support.slo_cluster import BEGAN, Cluster, running

NOW_NS = 1_800_000_000 * SECOND
CAPACITY = {"cpu": "32", "memory": "64Gi"}


def status(cpu: str, memory: str = "1Gi", at_ns: int = NOW_NS, **more: Any) -> NodeMetricStatus:
    used = ResourceMap(resources={"cpu": cpu, "memory": memory})
    return NodeMetricStatus(update_time=instant_text(at_ns), node_metric=NodeUsage(node_usage=used), **more)


@pytest.mark.parametrize(
    ("cpu", "memory", "kind"),
    [
        ("-1", "1Gi", "cpu is negative"),
        ("1", "-1", "memory is negative"),
        ("65", "1Gi", "cpu is above the capacity"),
        ("1", "9999Ti", "memory is above the capacity"),
    ],
)
def test_a_negative_amount_or_one_far_above_the_capacity_is_a_fault(cpu: str, memory: str, kind: str) -> None:
    (fault,) = report_of_node_metric(status(cpu, memory), NOW_NS).faults(CAPACITY)
    assert fault.kind == kind


def test_the_fault_names_amount_and_capacity() -> None:
    faults = report_of_node_metric(status("-500", "9999Ti"), NOW_NS).faults(CAPACITY)
    assert [fault.what for fault in faults] == [
        "cpu is -500, which is negative",
        "memory is 9999Ti, over 2 times the node's capacity of 64Gi",
    ]


def test_an_ordinary_report_has_no_fault() -> None:
    assert not report_of_node_metric(status("33"), NOW_NS).faults(CAPACITY)


def test_the_amounts_of_pods_count_too() -> None:
    """Overcommitment subtracts what pods use: a negative amount would sell what is not there."""
    pod = PodUsage(name="a", namespace="d", pod_usage=ResourceMap(resources={"cpu": "-30"}))
    (fault,) = report_of_node_metric(status("1", pods_metric=(pod,)), NOW_NS).faults(CAPACITY)
    assert fault.kind == "cpu is negative"


def test_a_report_from_the_future_counts_as_missing() -> None:
    ahead = report_of_node_metric(status("1", at_ns=NOW_NS + 3601 * SECOND), NOW_NS)
    assert ahead._replace(ahead_ns=0) == NO_REPORT
    assert [fault.kind for fault in ahead.faults(CAPACITY)] == ["its time is in the future"]
    assert not report_of_node_metric(status("1", at_ns=NOW_NS + 3600 * SECOND), NOW_NS).faults(CAPACITY)


# -- what is recorded of it


def observe(cluster: Cluster, found: NodeMetricStatus, at_s: float) -> None:
    cluster.append("cluster", NodeMetricObserved(node="n", object=NodeMetric(Metadata(name="n"), status=found)), at_s)


def seen(events: list[Event]) -> list[Event]:
    kinds = (NodeReportsIgnored, NodeReportsBelieved)
    return [e for e in events if isinstance(e, kinds) or (isinstance(e, ObjectDesired) and e.resource == "events")]


def impossible(cpu: str = "-500", *, at_s: float = 90, **more: Any) -> NodeMetricStatus:
    return status(cpu, at_ns=BEGAN + int(at_s * SECOND), **more)


def test_it_is_recorded_once_with_an_event_on_the_node_and_its_end_too() -> None:
    cluster = running()
    assert seen(cluster.decide(60)) == []
    observe(cluster, impossible(), 90)
    ignored, event = seen(cluster.decide(90))
    assert isinstance(ignored, NodeReportsIgnored)
    assert (ignored.node, ignored.since_ns) == ("n", BEGAN + 90 * SECOND)
    (fault,) = ignored.faults
    assert (fault.source, fault.what) == ("NodeMetric", "cpu is -500, which is negative")
    assert isinstance(event, ObjectDesired)
    assert event.body
    assert event.body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n"}
    assert (event.body["type"], event.body["reason"]) == ("Warning", "UsageReportsIgnored")
    assert "NodeMetric: cpu is -500" in event.body["message"]
    for at_s, cpu in ((150, "-501"), (210, "-7")):  # other amounts: the same state
        observe(cluster, impossible(cpu, at_s=at_s), at_s)
        assert seen(cluster.decide(at_s)) == []
    observe(cluster, impossible("1", at_s=270), 270)
    believed, event = seen(cluster.decide(270))
    assert believed == NodeReportsBelieved(node="n", since_ns=BEGAN + 90 * SECOND)
    assert isinstance(event, ObjectDesired)
    assert event.body
    assert (event.body["type"], event.body["reason"]) == ("Normal", "UsageReportsBelieved")
    assert cluster.state.ignored == {}


def test_another_fault_is_recorded_and_keeps_the_instant_at_which_it_began() -> None:
    cluster = running()
    observe(cluster, impossible(), 90)
    cluster.decide(90)
    observe(cluster, impossible("1", at_s=150 + 3601), 150)
    ignored, _ = seen(cluster.decide(150))
    assert isinstance(ignored, NodeReportsIgnored)
    assert ([fault.kind for fault in ignored.faults], ignored.since_ns) == (
        ["its time is in the future"],
        BEGAN + 90 * SECOND,
    )


def test_a_recorded_report_is_named_by_its_source() -> None:
    cluster = running()
    cluster.decide(60)
    cluster.report(90, {"web": (-33_000, 1)})
    ignored, _ = seen(cluster.decide(90))
    assert isinstance(ignored, NodeReportsIgnored)
    assert {fault.source for fault in ignored.faults} == {"metrics"}


def test_a_window_of_a_recorded_report_counts_too() -> None:
    cluster = running()
    cluster.report(90, {"web": (1000, 1)})
    good = cluster.records[-1].event
    bad = replace(good, at_ns=BEGAN + 150 * SECOND, windows=(WindowUsage(300, node=(Usage(-1, 1),)),))
    cluster.append("metrics-0", bad, 150)
    assert cluster.state.report_faults("n")


@pytest.mark.parametrize("gone", ["node", "report"])
def test_it_ends_with_the_node_or_with_the_report(gone: str) -> None:
    cluster = running()
    observe(cluster, impossible(), 90)
    cluster.decide(90)
    cluster.append("cluster", NodeDeleted("n", "uid-n") if gone == "node" else NodeMetricDeleted(node="n"), 100)
    believed, event = seen(cluster.decide(100))
    assert isinstance(believed, NodeReportsBelieved)
    assert isinstance(event, ObjectDesired)
    assert (event.body is None) == (gone == "node")
    assert declared_refusal("slo", event) == ""
    assert cluster.state.ignored == {}


def test_the_event_is_the_controllers_right_and_no_other_events_are() -> None:
    cluster = running()
    observe(cluster, impossible(), 90)
    _, event = seen(cluster.decide(90))
    assert isinstance(event, ObjectDesired)
    assert declared_refusal("slo", event) == ""
    assert declared_refusal("scheduling", event)
    assert declared_refusal("slo", replace(event, name="default/other"))


def test_what_is_ignored_survives_a_restart() -> None:
    cluster = running()
    observe(cluster, impossible(), 90)
    cluster.decide(90)
    restored = SloState()
    restored.restore(cluster.state.encode())
    assert restored.ignored == cluster.state.ignored
    assert restored.report_faults("n") == cluster.state.report_faults("n")
    assert restored.encode() == cluster.state.encode()


def test_a_node_whose_report_is_impossible_has_none_in_force() -> None:
    cluster = running()
    before, source = cluster.state.usage_report("n")
    assert source
    cluster.report(90, {"web": (-1, 1)})
    assert cluster.state.usage_report("n") == (NO_REPORT, "")
    assert before != NO_REPORT


@pytest.mark.parametrize(
    ("simulated", "command"),
    [
        (True, "`koord dev delete nodemetric n`"),
        (False, "`kubectl get nodemetric n -o yaml --show-managed-fields`"),
    ],
)
def test_the_remedy_is_a_command_of_the_kind_of_cluster(simulated: bool, command: str) -> None:
    fault = IgnoredReport("NodeMetric", "cpu is negative", "cpu is -500, which is negative")
    assert command in remedy_of(NodeReportsIgnored("n", (fault,), since_ns=1), simulated=simulated)
