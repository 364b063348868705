"""The State is a function of its positions, however the contexts' events were interleaved."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.slo_controller.state.pods_on_nodes import SPARE_TEMPLATES
from services.slo_controller.state.slo_state import SloState
from shared.domain.cpu_memory import Amount
from shared.events import RecordedEvent
from shared.events.cluster import NodeDeleted, NodeMetricDeleted, NodeMetricObserved
from shared.events.metrics import (
    ApplicationReported,
    ClassReported,
    NodeReported,
    NodeReportsExpired,
    PodReported,
    Usage,
)
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import (
    HostApplicationUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    Reclaimable,
    ResourceMap,
)
from shared.kube.quantity import nanos, value
from tests.support.slo_cluster import BEGAN, Cluster

G = 10**9


def history() -> list[RecordedEvent]:
    """Pods that come and go between reports, late reports, a NodeMetric object beside them, decisions, a node that goes."""
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.node("m")
    cluster.pod("a", at_s=1)
    cluster.report(30, {"a": (2_000, G)})
    cluster.decide(31)
    cluster.pod("b", at_s=40)
    cluster.report(20, {"a": (9_000, G)})
    cluster.report(90, {"a": (2_000, G), "b": (1_000, G)})
    cluster.no_pod("a", at_s=95)
    cluster.decide(96)
    usage = ResourceMap(resources={"cpu": "5", "memory": "1Gi"})
    status = NodeMetricStatus(update_time=instant_text(BEGAN + 100 * SECOND), node_metric=NodeUsage(node_usage=usage))
    cluster.append(
        "cluster", NodeMetricObserved(node="n", object=NodeMetric(metadata=Metadata(name="n"), status=status))
    )
    cluster.decide(101)
    cluster.append("cluster", NodeMetricDeleted(node="n"))
    cluster.report(150, {"b": (1_500, G)}, node="m")
    cluster.append("metrics-0", NodeReportsExpired(node="n", at_ns=BEGAN + 90 * SECOND))
    cluster.decide(151)
    cluster.append("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    cluster.pod("b", at_s=40, phase="Succeeded")
    cluster.decide(160)
    return cluster.records


HISTORY = history()


@given(st.randoms(use_true_random=False), st.integers(0, len(HISTORY)))
def test_any_interleaving_of_the_same_prefixes_ends_in_the_same_state(random: object, length: int) -> None:
    prefix = HISTORY[:length]
    queues = [[r for r in prefix if r.context == context] for context in ("cluster", "metrics-0", "slo")]
    one, other = SloState(), SloState()
    for record in prefix:
        one.apply(record)
    while any(queues):
        other.apply(random.choice([queue for queue in queues if queue]).pop(0))  # type: ignore[attr-defined]
    assert other.encode() == one.encode()
    names = sorted(one.nodes)
    assert [other.usage_sums(name) for name in names] == [one.usage_sums(name) for name in names]


def test_the_history_decides_something() -> None:
    assert {record.event.type_name() for record in HISTORY if record.context == "slo"} >= {
        "koord.slo.NodeOvercommitted.v1",
        "koord.intents.FieldsDesired.v1",
    }


def report_without_pods(cluster: Cluster, at_s: float, **more: object) -> None:
    """A report of a node without pods, with what an agent says beside them."""
    event = NodeReported(
        node="n", at_ns=BEGAN + int(at_s * SECOND), interval_s=60, aggregate_s=300, usage=Usage(20_000, 20 * G),
        system=Usage(2_000, 2 * G),
    )  # fmt: skip
    cluster.append("metrics-0", msgspec.structs.replace(event, **more), at_s)


NGINX = ApplicationReported("nginx", "koord-prod", "LS", 3_000, 4 * G)


def test_host_applications_reduce_batch_and_reclaimable_becomes_mid() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    report_without_pods(cluster, 10, applications=(), reclaimable=Usage(0, 0))
    before = cluster.decided(11)
    report_without_pods(cluster, 20, applications=(NGINX,), reclaimable=Usage(5_000, 6 * G))
    after = cluster.decided(21)
    assert before is not None
    assert after is not None
    assert _amount_of(before, "kubernetes.io/batch-cpu") - _amount_of(after, "kubernetes.io/batch-cpu") == 3_000
    assert _amount_of(before, "kubernetes.io/batch-memory") - _amount_of(after, "kubernetes.io/batch-memory") == 4 * G
    assert (
        _amount_of(after, "kubernetes.io/mid-cpu"),
        _amount_of(after, "kubernetes.io/mid-memory"),
    ) == (5_000, 6 * G)


def test_parts_that_a_report_lacks_come_from_the_nodemetric() -> None:
    usage = ResourceMap(resources={"cpu": "1", "memory": "1Gi"})
    status = NodeMetricStatus(
        update_time=instant_text(BEGAN),
        node_metric=NodeUsage(node_usage=usage),
        host_application_metric=(HostApplicationUsage(name="nginx", usage=usage, priority="koord-prod", qos="LS"),),
        prod_reclaimable_metric=Reclaimable(resource=usage),
    )
    cluster = Cluster()
    cluster.append(
        "cluster", NodeMetricObserved(node="n", object=NodeMetric(metadata=Metadata(name="n"), status=status))
    )
    report_without_pods(cluster, 10)
    found, source = cluster.state.usage_report("n")
    assert (source, len(found.applications), found.reclaimable.cpu) == ("metrics", 1, 10**9)
    report_without_pods(cluster, 20, applications=(), reclaimable=Usage())
    found, _ = cluster.state.usage_report("n")
    assert (found.applications, found.reclaimable.cpu) == ((), 0)


@pytest.mark.parametrize(
    ("phase", "is_counted"), [("Running", True), ("Pending", True), ("Succeeded", False), ("Unknown", False)]
)
def test_only_running_and_pending_pods_are_counted(phase: str, is_counted: bool) -> None:
    cluster = Cluster()
    cluster.pod("a", phase=phase)
    assert bool(cluster.state.pods.as_of("n", 0)) is is_counted


def test_pods_of_one_workload_share_their_template_and_demand_also_after_a_restore() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.pod("b")
    restored = SloState()
    restored.restore(cluster.state.encode())
    for state in (cluster.state, restored):
        one, other = state.pods.by_uid["uid-a"], state.pods.by_uid["uid-b"]
        assert one.template is other.template
        assert one.demand is other.demand
    assert restored.encode() == cluster.state.encode()


def test_reports_share_their_keys_with_the_pods_also_after_a_restore() -> None:
    cluster = Cluster()
    cluster.pod("a")
    used = ResourceMap(resources={"cpu": "2", "memory": "1Gi"})
    status = NodeMetricStatus(
        update_time=instant_text(BEGAN), pods_metric=(PodUsage(name="a", namespace="d", pod_usage=used),)
    )
    cluster.append(
        "cluster", NodeMetricObserved(node="n", object=NodeMetric(metadata=Metadata(name="n"), status=status))
    )
    cluster.report(30, {"a": (2_000, G), "no-pod": (1_000, G)})
    restored = SloState()
    restored.restore(cluster.state.encode())
    for state in (cluster.state, restored):
        key = state.pods.by_uid["uid-a"].key
        assert state.node_metrics["n"].pods.keys[0] is key
        assert state.reports["n"].pods.keys[0] is key
        assert state.reports["n"].pods.keys == ("d/a", "d/no-pod")
    assert restored.encode() == cluster.state.encode()


def test_of_two_usages_of_one_pod_the_last_counts() -> None:
    cluster = Cluster()
    old, new = PodReported("d/a", 1_000, G), PodReported("d/a", 2_000, 3 * G)
    report_without_pods(cluster, 10, pods=(ClassReported("koord-prod", "LS", (old, new)),))
    assert cluster.state.usage_sums("n").node.used == Amount(2 * G, 3 * G * G)


def test_templates_of_deleted_pods_are_dropped() -> None:
    cluster = Cluster()
    for number in range(2 * SPARE_TEMPLATES):
        cluster.pod(f"job-{number}", class_=f"class-{number}")
        cluster.no_pod(f"job-{number}", at_s=number * 3600)
    assert len(cluster.state.pods._templates) <= SPARE_TEMPLATES + 4


def test_a_pod_that_moves_is_counted_on_its_new_node_alone() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.pod("a", node="m")
    assert [list(cluster.state.pods.as_of(node, 0)) for node in "nm"] == [[], [cluster.state.pods.by_uid["uid-a"]]]


def _amount_of(event: NodeOvercommitted, resource: str) -> int:
    amount = event.amounts[resource]
    assert amount is not None
    return value(nanos(amount))
