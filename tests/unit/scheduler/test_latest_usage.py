"""Latest usage: NodeMetric objects in `cluster` and recorded reports in `metrics-*`; the younger by its own time counts."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.state.choose_newest_measurement import newest
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeMetricDeleted, NodeMetricObserved
from shared.events.metrics import NodeReported, NodeReportsExpired, Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import MetricCollectPolicy, NodeMetric, NodeMetricSpec, NodeMetricStatus, NodeUsage, ResourceMap
from tests.support.scheduling_world import START_NS
from tests.unit.scheduler.interleavings import merged


def reported(at_s: float, cpu_milli: int = 0, node: str = "a") -> NodeReported:
    at_ns = START_NS + int(at_s * SECOND)
    return NodeReported(node=node, at_ns=at_ns, interval_s=60, aggregate_s=300, usage=Usage(cpu_milli, 1))


def recorded(at_s: float, cpu_milli: int = 0) -> ReportRecord:
    return ReportRecord(reported(at_s, cpu_milli))


def metric(at_s: int, cpu: str = "1", node: str = "a", interval_s: int | None = None) -> NodeMetric:
    policy = None if interval_s is None else MetricCollectPolicy(report_interval_seconds=interval_s)
    return NodeMetric(
        metadata=Metadata(name=node),
        spec=NodeMetricSpec(metric_collect_policy=policy),
        status=NodeMetricStatus(
            update_time=instant_text(START_NS + at_s * SECOND),
            node_metric=NodeUsage(node_usage=ResourceMap(resources={"cpu": cpu})),
        ),
    )


def metric_record(at_s: int, **fields: int) -> MetricRecord:
    found = metric(at_s, **fields)  # type: ignore[arg-type]
    return MetricRecord(found, found.status.update_time or "")


def usage(found: MetricRecord | None) -> str:
    assert found is not None
    node = found.metric.status.node_metric
    assert node is not None
    assert node.node_usage is not None
    return (node.node_usage.resources or {})["cpu"]


def test_the_younger_counts_wherever_it_came_from() -> None:
    assert newest(None, {}) is None
    assert usage(newest(metric_record(10), {})) == "1"
    assert usage(newest(metric_record(10), {"metrics-0": recorded(9, 500)})) == "1"
    assert usage(newest(metric_record(10), {"metrics-0": recorded(10.5, 500)})) == "500m", (
        "an object keeps whole seconds"
    )
    assert usage(newest(metric_record(10), {"metrics-0": recorded(11, 500), "metrics-1": recorded(12, 700)})) == "700m"


def test_the_objects_spec_holds_for_what_is_recorded() -> None:
    found = newest(metric_record(10, interval_s=90), {"metrics-0": recorded(11)})
    assert found is not None
    assert found.metric.spec.metric_collect_policy == MetricCollectPolicy(report_interval_seconds=90)
    found = newest(None, {"metrics-0": recorded(11)})
    assert found is not None
    policy = found.metric.spec.metric_collect_policy
    assert policy is not None
    assert (policy.report_interval_seconds, policy.aggregate_duration_seconds) == (60, 300)


names, instants = st.sampled_from("ab"), st.integers(0, 20)
of_cluster = st.one_of(
    st.builds(lambda name, at_s: NodeMetricObserved(node=name, object=metric(at_s, str(at_s), name)), names, instants),
    st.builds(lambda name: NodeMetricDeleted(node=name), names),
)
of_metrics = st.one_of(
    st.builds(lambda name, at_s: reported(at_s, at_s, name), names, instants),
    st.builds(lambda name, at_s: NodeReportsExpired(node=name, at_ns=START_NS + at_s * SECOND), names, instants),
)


@given(
    st.lists(of_cluster, max_size=12), st.lists(of_metrics, max_size=8), st.lists(of_metrics, max_size=8), st.integers()
)
def test_any_interleaving_of_cluster_and_both_shards_ends_in_the_same_loads(
    cluster: list[Event], first: list[Event], second: list[Event], seed: int
) -> None:
    contexts = {"cluster": cluster, "metrics-0": first, "metrics-1": second}
    logs = {
        name: [RecordedEvent(name, seq, event) for seq, event in enumerate(events, 1)]
        for name, events in contexts.items()
    }
    views = []
    for number in range(3):
        view = SchedulerState()
        for record in merged(logs, Random(seed + number)):
            view.apply(record)
        views.append(view)
    assert len({view.encode() for view in views}) == 1
    restored = SchedulerState()
    restored.restore(views[0].encode())
    assert restored.encode() == views[0].encode()
    for name in "ab":
        found = {repr(newest(view.metrics.get(name), view.reports.get(name, {}))) for view in (*views, restored)}
        assert len(found) == 1
