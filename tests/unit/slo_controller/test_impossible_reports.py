"""A report that no measurement can give overcommits nothing: it counts as missing, and nobody is evicted for it."""

import pytest

from services.slo_controller.state.usage_report import NO_REPORT, report_of_node_metric
from shared.kube.instants import SECOND, instant_text
from shared.kube.node import NodeMetricStatus, NodeUsage, ResourceMap
from tests.support.slo_cluster import running

NOW_NS = 1_800_000_000 * SECOND


def status(cpu: str, memory: str = "1Gi", at_ns: int = NOW_NS) -> NodeMetricStatus:
    used = ResourceMap(resources={"cpu": cpu, "memory": memory})
    return NodeMetricStatus(update_time=instant_text(at_ns), node_metric=NodeUsage(node_usage=used))


@pytest.mark.parametrize(("cpu", "memory"), [("-1", "1Gi"), ("1", "-1"), ("65", "1Gi"), ("1", "9999Ti")])
def test_a_negative_amount_or_one_far_above_the_capacity_fits_no_node(cpu: str, memory: str) -> None:
    assert not report_of_node_metric(status(cpu, memory), NOW_NS).fits({"cpu": "32", "memory": "64Gi"})


def test_an_ordinary_report_fits() -> None:
    assert report_of_node_metric(status("33"), NOW_NS).fits({"cpu": "32", "memory": "64Gi"})


def test_a_report_from_the_future_counts_as_missing() -> None:
    assert report_of_node_metric(status("1", at_ns=NOW_NS + 3601 * SECOND), NOW_NS) == NO_REPORT
    assert report_of_node_metric(status("1", at_ns=NOW_NS + 3600 * SECOND), NOW_NS) != NO_REPORT


def test_a_node_whose_report_is_impossible_has_none_in_force() -> None:
    cluster = running()
    name = next(iter(cluster.state.nodes))
    before, source = cluster.state.usage_report(name)
    assert source
    impossible = before._replace(system=before.system._replace(cpu=-1))
    held = cluster.state.reports if name in cluster.state.reports else cluster.state.node_metrics
    held[name] = impossible
    assert cluster.state.usage_report(name) == (NO_REPORT, "")
