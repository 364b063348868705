"""Decisions of the controller about nodes, from a log."""

import json

import pytest
from msgspec import structs

from services.slo_controller.decide import AMOUNTS, METADATA, SPEC
from services.slo_controller.overcommit import batch_resources
from services.slo_controller.state.slo_state import NODES
from shared.admission.pod.gpu_resources import expand_gpu_requests
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.slo import NodeOvercommitted
from shared.kube.meta import Metadata
from shared.kube.node import MetricCollectPolicy, Node, NodeMetric, NodeMetricSpec, NodeStatus
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES
from tests.support.slo_cluster import ON, Cluster, G, running


def test_a_decision_is_recorded_with_every_term() -> None:
    decided = running().decided(31)
    assert decided is not None
    breakdown = decided.batch_cpu
    assert breakdown is not None
    assert (breakdown.capacity, breakdown.margin, breakdown.system, breakdown.reserved, breakdown.pods) == (
        100_000,
        35_000,
        7_000,
        0,
        33_000,
    )
    assert breakdown.left == breakdown.amount == 25_000
    assert decided.amounts[batch_resources.CPU] == "25k"
    assert decided.amounts[batch_resources.MEMORY] == "33000000000"
    assert (decided.why, decided.source, decided.ratio) == ("first", "metrics", "1.00")


def test_amounts_are_desired_in_capacity_and_allocatable() -> None:
    appended = running().decide(31)
    (amounts,) = [e for e in appended if isinstance(e, FieldsDesired) and e.fields == AMOUNTS]
    assert (amounts.resource, amounts.name, amounts.subresource) == (NODES, "n", "status")
    assert amounts.patch["status"]["allocatable"] == amounts.patch["status"]["capacity"]
    assert amounts.patch["status"]["allocatable"][batch_resources.CPU] == "25k"
    (metadata,) = [e for e in appended if isinstance(e, FieldsDesired) and e.fields == METADATA]
    assert metadata.patch["metadata"]["annotations"]["node.koordinator.sh/cpu-normalization-ratio"] == "1.00"


def test_a_change_within_the_threshold_is_not_written() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.report(90, {"web": (35_400, 33 * G)}, system=(7_000, 12 * G))  # 22,600: 9.6 % less
    assert cluster.decide(91) == []
    cluster.report(150, {"web": (35_600, 33 * G)}, system=(7_000, 12 * G))  # 22,400: 10.4 % less
    decided = cluster.decided(151)
    assert decided is not None
    assert (decided.why, decided.amounts[batch_resources.CPU]) == ("changed", "22400")


def test_any_difference_is_written_once_the_time_threshold_has_passed() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.report(330, {"web": (33_500, 33 * G)}, system=(7_000, 12 * G))
    assert cluster.decide(331) == []
    cluster.report(390, {"web": (33_500, 33 * G)}, system=(7_000, 12 * G))
    decided = cluster.decided(391)
    assert decided is not None
    assert (decided.why, decided.amounts[batch_resources.CPU]) == ("time", "24500")


def test_an_unchanged_node_is_not_decided_twice() -> None:
    cluster = running()
    assert cluster.decide(31)
    cluster.state.changed["n"] = None
    assert cluster.decide(32) == []


def test_a_pod_that_starts_between_two_reports_causes_no_jump() -> None:
    """Upstream subtracts its whole request at once, and adds most of it back with the next report."""
    cluster = running()
    cluster.decide(31)
    cluster.pod("new", cpu="16", memory="16G", at_s=45)
    upstream = 25_000 - 16_000  # the request of a pod without metrics: P4 of the spec
    assert cluster.decide(46) == []
    assert cluster.batch_cpu() == 25_000 != upstream
    cluster.report(90, {"web": (33_000, 33 * G), "new": (1_000, G)}, system=(7_000, 12 * G))
    cluster.decide(91)
    assert cluster.state.usage_sums("n").node.used.cpu == 34_000 * 10**6  # measured with the report, by its usage
    assert cluster.batch_cpu() == 25_000  # 24,000 is within the threshold: no write at all


def test_a_pod_that_ends_between_two_reports_causes_no_jump() -> None:
    """Upstream replaces an LSE pod's request at once by its measured usage, then by nothing."""
    cluster = Cluster()
    cluster.configure(ON | {"memoryCalculatePolicy": "request"})
    cluster.node()
    cluster.pod("lse", cpu="20", memory="60G", qos="LSE")
    cluster.report(30, {"lse": (2_000, 10 * G)})
    cluster.decide(31)
    before = cluster.batch_cpu()
    assert before == 45_000  # 100,000 - 35,000 - 20,000: by its request
    cluster.no_pod("lse", at_s=45)
    upstream = 100_000 - 35_000 - 2_000  # a dangling metric counts with its usage: P7 of the spec
    assert cluster.decide(46) == []
    assert cluster.batch_cpu() == before != upstream
    cluster.report(90, {})
    cluster.decide(91)
    assert cluster.batch_cpu() == 65_000


def test_a_pod_older_than_the_log_counts_from_its_own_start() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.report(30, {})
    cluster.pod("old", cpu="10", at_s=-500)
    assert [pod.key for pod in cluster.state.pods.as_of("n", cluster.state.newest_report_ns["n"])] == ["d/old"]


def test_a_node_whose_reports_stop_is_degraded_after_the_degrade_time() -> None:
    cluster = running()
    cluster.decide(31)
    assert cluster.decide(30 + 15 * 60) == []
    decided = cluster.decided(30 + 15 * 60 + 1)
    assert decided is not None
    assert decided.why == "degraded"
    assert decided.batch_cpu is None
    assert decided.amounts[batch_resources.CPU] == "0"
    cluster.report(1_000, {"web": (33_000, 33 * G)}, system=(7_000, 12 * G))
    back = cluster.decided(1_001)
    assert back is not None
    assert back.amounts[batch_resources.CPU] == "25k"


def test_disabling_removes_the_resources_and_zeroes_the_origin() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.configure({"enable": False})
    decided = cluster.decided(40)
    assert decided is not None
    assert (decided.why, decided.amounts[batch_resources.CPU]) == ("off", None)


def test_without_a_colocation_document_amounts_of_other_clients_stay() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.report(30, {})
    assert not [event for event in cluster.decide(31) if isinstance(event, FieldsDesired)]


def test_floor_and_cap_bound_batch_resources() -> None:
    cluster = running()
    cluster.configure(ON | {"koordstream": {"floor": {"cpu": "30"}, "cap": {"memory": "20Gi"}}})
    decided = cluster.decided(31)
    assert decided is not None
    assert (decided.amounts[batch_resources.CPU], decided.amounts[batch_resources.MEMORY]) == ("30k", "20Gi")
    assert decided.batch_cpu is not None
    assert (decided.batch_cpu.left, decided.batch_cpu.floor, decided.batch_cpu.amount) == (25_000, 30_000, 30_000)


def test_a_rise_may_wait_longer_than_a_fall() -> None:
    cluster = running()
    cluster.configure(ON | {"koordstream": {"hysteresis": {"risePercent": 30, "fallPercent": 2}}})
    cluster.decide(31)
    cluster.report(90, {"web": (28_000, 33 * G)}, system=(7_000, 12 * G))  # 30,000: 20 % more
    assert cluster.decided(91) is None
    cluster.report(150, {"web": (34_000, 33 * G)}, system=(7_000, 12 * G))  # 24,000: 4 % less
    decided = cluster.decided(151)
    assert decided is not None
    assert decided.amounts[batch_resources.CPU] == "24k"


def test_an_invalid_document_is_rejected_and_the_last_valid_one_stays() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.configure({"enable": True, "cpuReclaimThresholdPercent": -1})
    appended = cluster.decide(40)
    (refused,) = [event for event in appended if isinstance(event, ConfigRejected)]
    assert refused.path == "colocation-config: cpuReclaimThresholdPercent"
    assert not [event for event in appended if isinstance(event, ConfigApplied)]
    assert cluster.batch_cpu() == 25_000
    assert cluster.decide(41) == []
    cluster.configure()
    assert [type(event) for event in cluster.decide(42)] == [ConfigApplied]
    assert cluster.decide(43) == []


def test_a_nodeslo_follows_the_configmap_and_is_deleted_with_its_node() -> None:
    cluster = Cluster()
    cluster.configure(resource_threshold_config={"clusterStrategy": {"enable": True}})
    cluster.node()
    (made,) = [event for event in cluster.decide(1) if isinstance(event, ObjectDesired)]
    assert (made.resource, made.name) == (NODE_SLOS, "n")
    assert made.body is not None
    assert made.body["spec"]["resourceUsedThresholdWithBE"]["enable"] is True
    cluster.append("cluster", ObjectObserved(resource=NODE_SLOS, name="n", uid="s", object=made.body))
    assert not cluster.decide(2)
    cluster.configure(resource_threshold_config={"clusterStrategy": {"enable": False}})
    (changed,) = [event for event in cluster.decide(3) if isinstance(event, ObjectDesired)]
    assert changed.body is not None
    assert changed.body["spec"]["resourceUsedThresholdWithBE"]["enable"] is False
    cluster.append("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    (gone,) = [event for event in cluster.decide(4) if isinstance(event, ObjectDesired)]
    assert gone.body is None


def test_a_nodeslo_that_another_client_deleted_is_created_again() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.decide(1)
    cluster.append("cluster", ObjectObserved(resource=NODE_SLOS, name="n", uid="s", object={"spec": {}}))
    cluster.append("cluster", ObjectDeleted(resource=NODE_SLOS, name="n", uid="s"))
    assert [event.name for event in cluster.decide(2) if isinstance(event, ObjectDesired)] == ["n"]


def test_a_nodemetric_gets_its_collect_policy() -> None:
    cluster = Cluster()
    cluster.configure(ON | {"metricReportIntervalSeconds": 30})
    cluster.node()
    assert not [e for e in cluster.decide(1) if isinstance(e, FieldsDesired) and e.resource == NODE_METRICS]
    metric = NodeMetric(metadata=Metadata(name="n"), spec=NodeMetricSpec(metric_collect_policy=MetricCollectPolicy()))
    cluster.append("cluster", NodeMetricObserved(node="n", object=metric))
    (requested,) = [e for e in cluster.decide(2) if isinstance(e, FieldsDesired) and e.resource == NODE_METRICS]
    assert requested.fields == SPEC
    assert requested.patch["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30


def test_a_nodemetric_without_a_node_is_removed() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.append("cluster", NodeMetricObserved(node="ghost", object=NodeMetric(metadata=Metadata(name="ghost"))))
    (gone,) = [event for event in cluster.decide(1) if isinstance(event, ObjectDesired)]
    assert (gone.resource, gone.name, gone.body) == (NODE_METRICS, "ghost", None)


def test_a_node_created_again_under_the_same_name_is_decided_again() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.append("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    cluster.node()
    decided = cluster.decided(35)
    assert decided is not None
    assert decided.why == "first"


def test_device_resources_are_written_without_overcommitment() -> None:
    cluster = Cluster()
    cluster.node()
    device = {"spec": {"devices": [{"type": "rdma", "health": True}]}}
    name = "devices.scheduling.koordinator.sh"
    cluster.append("cluster", ObjectObserved(resource=name, name="n", uid="d", object=device))
    decided = cluster.decided(1)
    assert decided is not None
    assert decided.amounts["koordinator.sh/rdma"] == "100"


def test_what_the_webhook_makes_of_a_request_for_gpus_a_node_with_gpus_has_by_default() -> None:
    cluster = Cluster()
    cluster.node()
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    device = {"spec": {"devices": [{"type": "gpu", "health": True, "resources": resources}]}}
    name = "devices.scheduling.koordinator.sh"
    cluster.append("cluster", ObjectObserved(resource=name, name="n", uid="d", object=device))
    decided = cluster.decided(1)
    assert decided is not None
    half = {"koordinator.sh/gpu": "50"}
    container = {"name": "c", "resources": {"requests": dict(half), "limits": dict(half)}}
    expand_gpu_requests({"spec": {"containers": [container]}})
    requested = container["resources"]["requests"]  # type: ignore[index]
    assert "koordinator.sh/gpu.shared" in requested
    assert requested.keys() <= {resource for resource, size in decided.amounts.items() if size is not None}


def test_zones_of_a_topology_get_their_part() -> None:
    cluster = running()
    name = "noderesourcetopologies.topology.node.k8s.io"

    def resource(of: str, size: str) -> dict[str, str]:
        return {"name": of, "capacity": size, "allocatable": size, "available": size}

    zones = [
        {"name": f"node-{index}", "type": "Node", "resources": [resource("cpu", "50"), resource("memory", "60G")]}
        for index in (0, 1)
    ]
    cluster.append("cluster", ObjectObserved(resource=name, name="n", uid="t", object={"zones": zones}))
    (appended,) = [e for e in cluster.decide(31) if isinstance(e, FieldsDesired) and e.resource == name]
    found = [
        {each["name"]: each["allocatable"] for each in zone["resources"]}[batch_resources.CPU]
        for zone in appended.patch["zones"]
    ]
    assert found == ["12500", "12500"]
    assert json.loads(json.dumps(appended.patch)) == appended.patch


def test_a_restored_state_decides_the_same() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.pod("more", at_s=40)
    cluster.report(90, {"web": (1_000, G)}, system=(0, 0))
    image = cluster.state.encode()
    other = Cluster()
    other.state.restore(image)
    assert other.state.encode() == image
    assert other.decide(91) == cluster.decide(91)


FOUR_CPUS = {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize("lacks", ["capacity", "allocatable"])
def test_a_node_and_its_zones_are_written_once_its_status_has_capacity_and_allocatable(
    lacks: str,
) -> None:
    def resource(of: str, size: str) -> dict[str, str]:
        return {"name": of, "capacity": size, "allocatable": size, "available": size}

    cluster = Cluster()
    cluster.configure()
    meta, status = Metadata(name="n", uid="uid-n"), NodeStatus(capacity=FOUR_CPUS, allocatable=FOUR_CPUS)
    bare = Node(metadata=meta, status=structs.replace(status, **{lacks: None}))
    zones = [{"name": "node-0", "type": "Node", "resources": [resource("cpu", "4"), resource("memory", "8Gi")]}]
    cluster.append("cluster", NodeObserved(node="n", object=bare))
    cluster.append("cluster", ObjectObserved(resource=NODE_TOPOLOGIES, name="n", uid="t", object={"zones": zones}))
    cluster.report(10, {})
    assert not [e for e in cluster.decide(11) if isinstance(e, FieldsDesired | NodeOvercommitted)]
    cluster.append("cluster", NodeObserved(node="n", object=Node(metadata=meta, status=status)))
    written = [e.resource for e in cluster.decide(12) if isinstance(e, FieldsDesired)]
    assert written == [NODE_TOPOLOGIES, "nodes", "nodes"]


def test_amounts_stay_while_the_status_lacks_allocatable() -> None:
    cluster = running()
    assert cluster.decided(31) is not None
    bare = Node(metadata=Metadata(name="n", uid="uid-n"), status=NodeStatus(capacity=FOUR_CPUS))
    cluster.append("cluster", NodeObserved(node="n", object=bare))
    assert not [e for e in cluster.decide(2_000) if isinstance(e, FieldsDesired | NodeOvercommitted)]
    cluster.node()
    decided = cluster.decided(2_001)
    assert decided is not None
    assert decided.why == "degraded"


def test_a_deleted_pod_is_dropped_after_a_while() -> None:
    cluster = running()
    cluster.no_pod("web", at_s=100)
    cluster.pod("other", at_s=100)
    cluster.append("cluster", PodDeleted(pod="d/other", pod_uid="uid-other"), at_s=100 + 1801)
    assert list(cluster.state.pods.by_uid) == ["uid-other"]
