"""The pods of a report as the State keeps them: what LoadAwareScheduling reads of them is what was reported."""

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.plugins.load_aware_scheduling.args import read_args
from services.scheduler.plugins.load_aware_scheduling.node_metric_report import Report, read_report
from services.scheduler.plugins.load_aware_scheduling.pod_load_not_in_report import share_of_pod
from services.scheduler.state.choose_newest_measurement import newest
from services.scheduler.state.packed_reported_pods import ReportedUsage, encoded_classes, encoded_usages, reported_pods
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.node_metric_status import status_of
from shared.events import RecordedEvent
from shared.events.cluster import NodeMetricObserved
from shared.events.metrics import ClassReported, NodeReported, PodReported
from shared.kube.meta import Metadata
from shared.kube.node import NodeMetric, PodUsage, ResourceMap

RESOURCES = ("cpu", "memory")
ARGS = read_args({})

amounts = st.none() | st.integers(-3, 5_000) | st.integers(-(2**63), 2**63 - 1)
pods = st.builds(PodReported, st.sampled_from(["ns/a", "ns/b", "other/a"]), amounts, amounts)
classes = st.builds(
    ClassReported,
    st.sampled_from(["koord-prod", "koord-batch", ""]),
    st.just("LS"),
    st.lists(pods, unique_by=lambda pod: pod.pod).map(tuple),
)


def pod(name: str, priority: str = "", **resources: str) -> PodUsage:
    return PodUsage(namespace="ns", name=name, priority=priority, pod_usage=ResourceMap(resources=resources))


def test_a_pod_is_read_with_its_class_and_its_quantities_as_they_were_written() -> None:
    found = reported_pods(
        encoded_usages(
            [
                pod("a", "koord-prod", cpu="0.5", memory="1Gi"),
                pod("b", "koord-batch", cpu="what"),
                pod("c", "koord-prod", memory="2Gi", cpu="1"),
                PodUsage(namespace="ns", name="unmeasured"),
                pod("empty"),
            ]
        )
    )
    assert {name: found.usage(name) for name in found.pods} == {
        "ns/a": ReportedUsage("koord-prod", {"cpu": "0.5", "memory": "1Gi"}),
        "ns/b": ReportedUsage("koord-batch", {"cpu": "what"}),
        "ns/c": ReportedUsage("koord-prod", {"cpu": "1", "memory": "2Gi"}),
    }
    assert found.usage("ns/unmeasured") is None


def test_of_two_entries_with_one_name_the_last_counts() -> None:
    found = reported_pods(encoded_usages([pod("a", "koord-prod", cpu="1"), pod("b"), pod("a", "koord-mid", cpu="2")]))
    assert found.usage("ns/a") == ReportedUsage("koord-mid", {"cpu": "2"})


def test_a_report_without_pods_takes_no_bytes() -> None:
    assert encoded_usages([]) == encoded_classes([ClassReported("", "")]) == b""
    assert not reported_pods(b"").pods


@given(st.lists(classes, max_size=1).map(tuple))
def test_a_recorded_report_counts_as_the_node_metric_that_the_gateway_writes_of_it(given: tuple) -> None:  # type: ignore[type-arg]
    report = NodeReported(node="n", at_ns=0, interval_s=60, aggregate_s=60, pods=given)
    metric = NodeMetric(metadata=Metadata(name="n"), status=status_of(report))
    of_event = read_report(metric, RESOURCES, ARGS, None, encoded_classes(given))
    of_object = read_report(metric, RESOURCES, ARGS, None)
    assert of_event.pods.pods.keys() == of_object.pods.pods.keys()

    def share(report: Report, name: str) -> object:
        return share_of_pod(report, name, (1000, 1000), 0, None, is_prod=True, resources=RESOURCES)

    for name in of_object.pods.pods:
        assert share(of_event, name) == share(of_object, name)


def test_an_amount_beyond_64_bits_is_bounded_and_folded() -> None:
    found = reported_pods(encoded_classes([ClassReported("", "", (PodReported("ns/a", 2**70, -(2**70)),))]))
    assert found.usage("ns/a") == ReportedUsage("", {"cpu": 2**62, "memory": -(2**62)})


def test_the_state_keeps_a_node_metric_once_without_the_objects_of_its_pods() -> None:
    view = SchedulerState()
    metric = NodeMetric(metadata=Metadata(name="n"), status=status_of(NodeReported("n", 0, 60, 60)))
    with_pods = NodeMetric(
        metadata=metric.metadata,
        status=status_of(NodeReported("n", 0, 60, 60, pods=(ClassReported("", "", (PodReported("ns/a", 1),)),))),
    )
    view.apply(RecordedEvent("cluster", 1, NodeMetricObserved(node="n", object=with_pods), 0))
    restored = SchedulerState()
    restored.restore(view.encode())
    for each in (view, restored):
        found = newest(each.metrics["n"], {})
        assert found is not None
        assert found.metric == metric
        assert reported_pods(found.pods).usage("ns/a") == ReportedUsage("", {"cpu": "1m"})
