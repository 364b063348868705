"""Reports in the form that thresholds read: every resource that a NodeMetric has."""

from services.descheduler.framework.measured_effect import used
from services.descheduler.state.load_report import report_of_node_metric
from shared.kube.node import NodeMetricStatus, NodeUsage, PodUsage, ResourceMap

USED = ResourceMap(resources={"cpu": "1500m", "ephemeral-storage": "2Gi", "example.com/cards": "much"})


def test_a_node_metric_keeps_every_resource_that_can_be_read() -> None:
    status = NodeMetricStatus(
        update_time="2026-01-01T00:00:00Z",
        node_metric=NodeUsage(system_usage=ResourceMap(resources={"ephemeral-storage": "1Gi"})),
        pods_metric=(PodUsage(namespace="default", name="a", pod_usage=USED),),
    )
    report = report_of_node_metric(status, 2**62)
    assert report.pods == {"default/a": {"cpu": 1500, "ephemeral-storage": 2 << 30}}
    assert used(report, "ephemeral-storage") == 3 << 30
    assert used(report, "memory") == 0
