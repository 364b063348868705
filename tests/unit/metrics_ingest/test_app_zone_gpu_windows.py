"""Extra metrics from report to NodeMetric: host applications, zones, GPUs, predictions."""

import msgspec

from services.metrics_ingest.agent_reports.aggregation_policy import Policy
from services.metrics_ingest.agent_reports.decide_reports import node_reported
from services.metrics_ingest.agent_reports.metrics_ingest_state import ReportIngestState
from services.metrics_ingest.agent_reports.usage_windows import NodeWindows
from shared.agents.report import ApplicationSum, Forecast, GpuSum, Report, ZoneSum
from shared.domain.node_metric_status import desired_status, status_of
from shared.events.metrics import ApplicationReported, GpuReported, NodeReported, Usage, ZoneReported
from shared.kube.instants import SECOND
from tests.support.pods import observed
from tests.unit.metrics_ingest.cluster_history import START_NS, Logs, fold, pod

GIB = 2**30
NGINX = ApplicationSum("nginx", "koord-prod", "LS", 3_000_000, 2, 2 * GIB, 2)


def report(seq: int, **more: object) -> Report:
    return msgspec.structs.replace(
        Report(node="n", boot="b", seq=seq, at_ns=START_NS + seq * 15 * SECOND, interval_ns=15 * SECOND), **more
    )


def recorded(*reports: Report, state: ReportIngestState | None = None) -> NodeReported:
    windows = NodeWindows("n")
    for each in reports:
        windows.add(each)
    return node_reported(state or ReportIngestState(), windows.measure(Policy()), Policy())


def test_host_applications_are_means_over_the_aggregate_window() -> None:
    less = msgspec.structs.replace(NGINX, cpu_sum=1_000_000, memory_sum=GIB)
    event = recorded(report(1, applications=(NGINX,)), report(2, applications=(less,)))
    assert event.applications == (ApplicationReported("nginx", "koord-prod", "LS", 1_000, 3 * GIB // 4),)


def test_an_application_absent_from_the_newest_report_is_gone() -> None:
    one, two = report(1, applications=(NGINX,)), report(2, applications=())
    assert recorded(one, two).applications == ()
    assert recorded(two, one).applications == ()  # in any order of arrival
    assert recorded(report(1)).applications is None


def test_the_newest_prediction_counts() -> None:
    event = recorded(
        report(1, reclaimable=Forecast(100, GIB), peak=Forecast(900, GIB)),
        report(2, reclaimable=Forecast(250, 2 * GIB)),
    )
    assert (event.reclaimable, event.peak) == (Usage(250, 2 * GIB), None)


def test_zones_and_gpus_are_means_and_gpus_of_pods_name_their_pods() -> None:
    logs = Logs()
    logs.append("cluster", observed(pod("a", "n")))
    state = fold(ReportIngestState, logs.contexts["cluster"])
    zone = ZoneSum(1, 4_000_000, 2, 2 * GIB, 2, 1_000_000, 2, GIB, 2)
    gpus = (
        GpuSum("", 0, "GPU-1", 120, 8 * GIB, 2, 16 * GIB),
        GpuSum("uid-a", 0, "GPU-1", 80, 4 * GIB, 2, 16 * GIB),
        GpuSum("uid-unknown", 0, "GPU-1", 1, GIB, 1, 16 * GIB),
    )
    event = recorded(report(1, zones=(zone,), gpus=gpus), state=state)
    assert event.zones == (ZoneReported(1, Usage(2_000, GIB), Usage(500, GIB // 2)),)
    assert event.gpus == (
        GpuReported("", 0, "GPU-1", 60, 4 * GIB, 16 * GIB),
        GpuReported("d/a", 0, "GPU-1", 40, 2 * GIB, 16 * GIB),
    )


def test_all_extra_metrics_are_in_the_nodemetric() -> None:
    event = NodeReported(
        node="n",
        at_ns=START_NS,
        interval_s=60,
        aggregate_s=300,
        applications=(ApplicationReported("nginx", "koord-prod", "LS", 1_500, GIB),),
        reclaimable=Usage(2_350, 5_046_586_573),
        peak=Usage(5_339, None),
        zones=(ZoneReported(0, Usage(2_000, GIB), Usage(500, None)),),
        gpus=(GpuReported("", 3, "GPU-1", 60, 4 * GIB, 16 * GIB),),
    )
    plain = msgspec.to_builtins(status_of(event))
    assert plain["hostApplicationMetric"] == (
        {
            "name": "nginx",
            "usage": {"resources": {"cpu": "1500m", "memory": "1Gi"}},
            "priority": "koord-prod",
            "qos": "LS",
        },
    )
    assert plain["prodReclaimableMetric"]["resource"]["resources"] == {"cpu": "2350m", "memory": "5046586573"}
    assert plain["prodPeakMetric"]["resource"]["resources"] == {"cpu": "5339m"}
    (zone,) = plain["nodeMetric"]["numaUsages"]
    assert (zone["numaNodeID"], zone["systemUsage"]["resources"]) == (0, {"cpu": "500m"})
    (device,) = plain["nodeMetric"]["nodeUsage"]["devices"]
    assert (device["minor"], device["resources"]["koordinator.sh/gpu-memory-ratio"]) == (3, "25")


def test_values_absent_from_a_report_are_left_unchanged() -> None:
    silent = NodeReported(node="n", at_ns=START_NS, interval_s=60, aggregate_s=300)
    status = _patch(silent)
    assert not status.keys() & {"hostApplicationMetric", "prodReclaimableMetric", "prodPeakMetric"}
    empty = msgspec.structs.replace(silent, applications=(), reclaimable=Usage())
    status = _patch(empty)
    assert status["hostApplicationMetric"] == []
    assert status["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": None, "memory": None}}}
    assert status["prodPeakMetric"] is None


def test_an_event_recorded_by_an_earlier_release_is_read() -> None:
    stored = (
        b'{"type":"koord.metrics.NodeReported.v1","node":"n","at_ns":1,"interval_s":60,"aggregate_s":300,"usage":[5,6]}'
    )
    event = msgspec.json.decode(stored, type=NodeReported)
    assert (event.applications, event.reclaimable, event.gpus) == (None, None, ())
    assert msgspec.json.encode(event) == stored  # new fields are written only where they have a value


def _patch(event: NodeReported) -> dict[str, object]:
    found: dict[str, object] = desired_status(event).patch["status"]
    return found


def test_zones_stay_in_reports_between_two_samples_of_them() -> None:
    zone = ZoneSum(0, 2_000_000, 1, GIB, 1)
    assert recorded(report(1, zones=(zone,)), report(2, applications=())).zones == (ZoneReported(0, Usage(2_000, GIB)),)
