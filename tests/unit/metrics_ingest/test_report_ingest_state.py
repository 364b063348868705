"""The fold of metrics ingest: a function of the positions alone, and the same after a snapshot."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from services.metrics_ingest.agent_reports.aggregation_policy import Policy, policy_of
from services.metrics_ingest.agent_reports.decide_reports import (
    expired_reports,
    is_due,
    node_reported,
    report_drafts,
)
from services.metrics_ingest.agent_reports.metrics_ingest_state import (
    GONE_KEPT_NS,
    NodeSloRecord,
    ReportIngestState,
)
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.metrics_ingest.agent_reports.usage_windows import AggregatedUsage
from shared.agents.report import Report
from shared.domain.node_metric_status import STATUS, desired_status
from shared.events import Cause
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.events.metrics import ClassReported, NodeReported, NodeReportsExpired, PodReported, Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import MetricCollectPolicy, Node, NodeMetric, NodeMetricSpec, NodeMetricStatus
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS
from tests.support.pods import observed
from tests.unit.metrics_ingest.cluster_history import START_NS, Logs, fold, pod

SETTINGS = IngestSettings()


def node_seen(name: str) -> NodeObserved:
    return NodeObserved(node=name, object=Node(metadata=Metadata(name=name)))


def pod_seen(name: str, node: str, **fields: str) -> PodObserved:
    return observed(pod(name, node, **fields))


def metric_seen(name: str, interval_s: int) -> NodeMetricObserved:
    spec = NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(report_interval_seconds=interval_s))
    return NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), spec=spec))


def report_event(name: str, at_s: int) -> NodeReported:
    return NodeReported(node=name, at_ns=START_NS + at_s * SECOND, interval_s=60, aggregate_s=300)


def is_status_desired(state: ReportIngestState, at_s: int, settings: IngestSettings, now_ns: int) -> bool:
    event = report_drafts(state, report_event("a", at_s), settings, now_ns)[-1].event
    assert isinstance(event, NodeReported)
    return event.status_desired


def measured(node: str, pods: dict[str, Usage], at_ns: int = START_NS) -> AggregatedUsage:
    return AggregatedUsage(node, at_ns, Usage(1, 1), Usage(), Usage(), (), pods)


names = st.sampled_from("abc")
numbers = st.integers(0, 9)
cluster_events = st.one_of(
    st.builds(node_seen, names),
    st.builds(lambda name: NodeDeleted(node=name, node_uid=name), names),
    st.builds(lambda name, node, phase: pod_seen(name, node, phase=phase), names, st.sampled_from(["", "a", "b"]),
              st.sampled_from(["Pending", "Running", "Succeeded"])),
    st.builds(lambda name, node: pod_seen(name, node, mirror=f"hash-{name}"), names, names),
    st.builds(lambda name: PodDeleted(pod=f"d/{name}", pod_uid=f"uid-{name}"), names),
    st.builds(metric_seen, names, numbers),
    st.builds(lambda name: NodeMetricDeleted(node=name), names),
    st.builds(lambda name, number: ObjectObserved(resource=NODE_SLOS, name=name, uid=name, object={"spec": {"n": number}}), names, numbers),
    st.builds(lambda name: ObjectDeleted(resource=NODE_SLOS, name=name, uid=name), names),
    st.builds(lambda number: WriterStarted(epoch=number, release="1"), numbers),
    st.builds(lambda name: DesiredStateRejected(resource=NODE_METRICS, name=name, reason="no"), names),
    st.builds(lambda name: DesiredStateApplied(resource=NODE_METRICS, name=name, fields=STATUS), names),
    st.builds(lambda name: MissingPermission(name=name, rule="patch nodemetrics"), names),
)  # fmt: skip
own_events = st.one_of(
    st.builds(report_event, names, numbers),
    st.builds(
        lambda name, at_s: report_drafts(ReportIngestState(), report_event(name, at_s), SETTINGS, START_NS)[-1].event,
        names,
        numbers,
    ),
    st.builds(lambda name, at_s: desired_status(report_event(name, at_s)), names, numbers),
    st.builds(lambda name, at_s: NodeReportsExpired(node=name, at_ns=START_NS + at_s * SECOND), names, numbers),
)


@given(
    st.lists(cluster_events, max_size=30), st.lists(own_events, max_size=10), st.integers(0, 2**32), st.integers(0, 40)
)
def test_any_interleaving_leads_to_the_same_bytes_even_with_a_snapshot_in_between(
    cluster: list[object], own: list[object], seed: int, cut: int
) -> None:
    logs = Logs()
    for event in cluster:
        logs.append("cluster", event, cause=Cause("metrics-0", 1))  # type: ignore[arg-type]
    for event in own:
        logs.append("metrics-0", event)  # type: ignore[arg-type]
    orders = [logs.interleaved(Random(seed + number)) for number in range(3)]
    assert len({fold(ReportIngestState, order).encode() for order in orders}) == 1
    restored = ReportIngestState()
    restored.restore(fold(ReportIngestState, orders[0][:cut]).encode())
    for record in orders[0][cut:]:
        restored.apply(record)
    assert restored.encode() == fold(ReportIngestState, orders[0]).encode()


def test_pods_are_joined_as_of_the_reports_own_time() -> None:
    logs = Logs()
    logs.append("cluster", node_seen("a"), pod_seen("p", "a"), pod_seen("q", "a", qos="BE"), pod_seen("elsewhere", "b"))
    before_ns = logs.now_ns
    logs.append("cluster", PodDeleted(pod="d/p", pod_uid="uid-p"))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    pods = {"uid-q": Usage(1, 1), "uid-p": Usage(2, 2), "uid-elsewhere": Usage(4, 4), "unknown": Usage(8, None)}
    then = node_reported(state, measured("a", pods, before_ns), Policy())
    assert then.pods == (
        ClassReported("koord-batch", "BE", (PodReported("d/q", 1, 1),)),
        ClassReported("koord-prod", "LS", (PodReported("d/p", 2, 2),)),
    )
    assert then.unmatched == Usage(8, 0)
    now = node_reported(state, measured("a", pods, logs.now_ns), Policy())
    assert [pod.pod for of in now.pods for pod in of.pods] == ["d/q"]


def test_a_static_pod_has_the_uid_under_which_its_node_runs_it() -> None:
    logs = Logs()
    logs.append("cluster", pod_seen("apiserver", "a", mirror="hash"))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    assert node_reported(state, measured("a", {"hash": Usage(1, 1)}), Policy()).pods[0].pods == (
        PodReported("d/apiserver", 1, 1),
    )


def test_removed_pods_are_kept_for_a_while_only() -> None:
    logs = Logs()
    for name in "ab":
        logs.append("cluster", pod_seen(name, "n"), PodDeleted(pod=f"d/{name}", pod_uid=f"uid-{name}"))
        logs.now_ns += 2 * GONE_KEPT_NS
    assert list(fold(ReportIngestState, logs.contexts["cluster"]).known_pods) == ["uid-b"]


def test_a_report_is_due_an_interval_after_the_last_and_only_of_a_node_in_the_cluster() -> None:
    logs = Logs()
    logs.append("metrics-0", report_event("a", 0))
    unknown = fold(ReportIngestState, logs.contexts["metrics-0"])
    logs.append("cluster", node_seen("a"))
    state = fold(ReportIngestState, logs.interleaved(Random(1)))

    def report(at_s: int) -> Report:
        return Report("a", "b", 1, START_NS + at_s * SECOND, 10 * SECOND)

    assert not is_due(unknown, report(600), Policy())
    assert [at_s for at_s in (54, 55, 60) if is_due(state, report(at_s), Policy())] == [55, 60]


def test_the_object_is_created_once_and_after_a_rejection_nothing_is_written_for_a_while() -> None:
    logs = Logs()
    logs.append("cluster", node_seen("a"))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    plain, desired = report_event("a", 0), replace(report_event("a", 0), status_desired=True)
    created, reported = [draft.event for draft in report_drafts(state, plain, SETTINGS, logs.now_ns)]
    # The creation comes first: fields wait for an object that was desired before them.
    assert (created, reported) == (ObjectDesired(resource=NODE_METRICS, name="a", body={}), desired)
    state.apply(logs.append("cluster", metric_seen("a", 60)))
    assert [draft.event for draft in report_drafts(state, plain, SETTINGS, logs.now_ns)] == [desired]
    refusal = DesiredStateRejected(resource=NODE_METRICS, name="a", reason="no such resource")
    state.apply(logs.append("cluster", refusal, cause=Cause("metrics-0", 3)))
    assert [draft.event for draft in report_drafts(state, plain, SETTINGS, logs.now_ns)] == [plain]
    later_ns = logs.now_ns + SETTINGS.refused_pause_s * SECOND
    assert [draft.event for draft in report_drafts(state, plain, SETTINGS, later_ns)] == [desired]


def test_objects_are_written_at_their_interval_although_every_report_is_recorded() -> None:
    logs = Logs()
    logs.append("cluster", node_seen("a"))
    status = NodeMetricStatus(update_time=instant_text(START_NS))
    logs.append("cluster", NodeMetricObserved(node="a", object=NodeMetric(metadata=Metadata(name="a"), status=status)))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    seldom = IngestSettings(node_metric_interval_s=600)
    assert [at_s for at_s in (60, 599, 600) if is_status_desired(state, at_s, seldom, logs.now_ns)] == [600]
    assert not is_status_desired(state, 60, IngestSettings(node_metrics=False), logs.now_ns)


def test_a_desired_status_counts_as_written_unless_it_was_rejected() -> None:
    logs, seldom = Logs(), IngestSettings(node_metric_interval_s=600)
    logs.append("cluster", node_seen("a"), metric_seen("a", 60))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    decided = report_drafts(state, report_event("a", 0), seldom, logs.now_ns)[-1].event
    state.apply(logs.append("metrics-0", decided))

    def due() -> list[int]:
        later_ns = logs.now_ns + seldom.refused_pause_s * SECOND
        return [at_s for at_s in (60, 599, 600) if is_status_desired(state, at_s, seldom, later_ns)]

    assert due() == [600]
    refusal = DesiredStateFailed(resource=NODE_METRICS, name="a", reason="no answer", fields=STATUS)
    state.apply(logs.append("cluster", refusal, cause=Cause("metrics-0", 1)))
    assert due() == [60, 599, 600]
    written = DesiredStateApplied(resource=NODE_METRICS, name="a", fields=STATUS)
    state.apply(logs.append("cluster", written, cause=Cause("metrics-0", 2)))
    assert due() == [600]


def test_a_status_without_usage_removes_that_of_an_earlier_one() -> None:
    event = NodeReported(node="a", at_ns=START_NS, interval_s=60, aggregate_s=300, usage=Usage(5, None))
    assert desired_status(event).patch == {
        "status": {
            "updateTime": "2026-05-28T20:26:40Z",
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "5m", "memory": None}, "devices": None},
                "systemUsage": {"resources": {"cpu": None, "memory": None}},
                "aggregatedNodeUsages": [],
                "aggregatedSystemUsages": [],
                "numaUsages": None,
            },
            "podsMetric": [],
        }
    }


def test_only_silent_nodes_that_are_gone_are_forgotten_with_their_object() -> None:
    logs = Logs()
    logs.append("cluster", node_seen("there"), metric_seen("there", 60), metric_seen("gone", 60))
    logs.append("metrics-0", report_event("there", 0), report_event("gone", 5))
    state = fold(ReportIngestState, logs.interleaved(Random(1)))
    drafts = [draft.event for draft in expired_reports(state, ["there", "gone", "unheard"])]
    assert drafts == [
        NodeReportsExpired(node="gone", at_ns=START_NS + 5 * SECOND),
        ObjectDesired(resource=NODE_METRICS, name="gone", body=None),
    ]


def test_a_nodeslo_carries_the_epoch_and_seq_of_the_cluster() -> None:
    logs = Logs()
    logs.append("cluster", WriterStarted(epoch=7, release="1"))
    seen = logs.append("cluster", ObjectObserved(resource=NODE_SLOS, name="a", uid="u", object={"spec": {"x": 1}}))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    assert state.slos == {"a": NodeSloRecord(7, seen.seq, {"x": 1})}


def test_the_spec_of_the_newest_object_counts() -> None:
    logs = Logs()
    logs.append("cluster", metric_seen("a", 60), metric_seen("a", 120))
    assert policy_of(fold(ReportIngestState, logs.contexts["cluster"]).specs["a"]).interval_s == 120


def test_an_agent_receives_the_memory_policy_of_its_nodemetric() -> None:
    def metric(policy: str | None) -> NodeMetricObserved:
        spec = NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(node_memory_collect_policy=policy))
        return NodeMetricObserved(node="a", object=NodeMetric(metadata=Metadata(name="a"), spec=spec))

    logs = Logs()
    logs.append("cluster", metric("usageWithoutPageCache"))  # the default is no change
    assert fold(ReportIngestState, logs.contexts["cluster"]).slos == {}
    logs.append("cluster", metric("usageWithPageCache"))
    logs.append("cluster", ObjectObserved(resource=NODE_SLOS, name="a", uid="s", object={"spec": {"x": 1}}))
    assert fold(ReportIngestState, logs.contexts["cluster"]).slos["a"] == NodeSloRecord(
        0, 3, {"x": 1}, "usageWithPageCache"
    )
    logs.append("cluster", metric("usageWithPageCache"))
    assert fold(ReportIngestState, logs.contexts["cluster"]).slos["a"].seq == 3
    logs.append("cluster", NodeMetricDeleted(node="a"))
    assert fold(ReportIngestState, logs.contexts["cluster"]).slos["a"] == NodeSloRecord(0, 5, {"x": 1})
