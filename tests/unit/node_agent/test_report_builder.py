"""Reports from samples."""

from services.node_agent.collectors.usage_sample_types import SECOND_NS, Usage, UsageSnapshot, ZoneUsage
from services.node_agent.report_builder import Forecasts, ReportBuilder, Sender
from shared.agents.report import ApplicationSum, Forecast, PodSum, Series, ZoneSum, decode, encode
from shared.kube.slo_config import HostApplication

SENDER = Sender("worker-1", "3f2a")
BEGIN_NS = 5 * SECOND_NS
WALL_NS = 1_800_000_000 * SECOND_NS


def snapshot(
    second: int, node: Usage | None, pods: dict[str, Usage], best_effort: Usage | None = None
) -> UsageSnapshot:
    return UsageSnapshot(BEGIN_NS + second * SECOND_NS, node, node, best_effort, pods)


def test_samples_keep_their_time_and_pods_add_up() -> None:
    builder = ReportBuilder(BEGIN_NS)
    builder.add(snapshot(1, Usage(300, 10), {"b": Usage(100, 7)}))
    builder.add(snapshot(2, Usage(500, 11), {"b": Usage(300, 5), "a": Usage(1, 2)}, Usage(40, 3)))
    made = builder.build(SENDER, 4, BEGIN_NS + 2 * SECOND_NS, WALL_NS)
    assert made.node_usage == Series((1_000, 2_000), (300, 500), (10, 11))
    assert made.best_effort_usage == Series((2_000,), (40,), (3,))
    assert made.pods == (PodSum("a", 1, 1, 1, 2, 1, 2), PodSum("b", 400, 2, 300, 12, 2, 5))
    assert (made.node, made.boot, made.seq, made.interval_ns) == ("worker-1", "3f2a", 4, 2 * SECOND_NS)
    assert decode(encode(made), "worker-1") == made


def test_unmeasured_values_are_absent() -> None:
    builder = ReportBuilder(BEGIN_NS)
    builder.add(snapshot(1, Usage(None, 10), {"a": Usage(None, 2)}))
    made = builder.build(SENDER, 1, BEGIN_NS + SECOND_NS, WALL_NS)
    assert made.node_usage == Series((1_000,), (), (10,))
    assert made.pods == (PodSum("a", 0, 0, 0, 2, 1, 2),)
    assert decode(encode(made), "worker-1") == made


def test_a_value_that_some_samples_lack_is_left_out() -> None:
    builder = ReportBuilder(BEGIN_NS)
    builder.add(snapshot(1, None, {}, Usage(None, 10)))
    builder.add(snapshot(2, None, {}, Usage(5, 11)))
    made = builder.build(SENDER, 1, BEGIN_NS + 2 * SECOND_NS, WALL_NS)
    assert made.best_effort_usage == Series((1_000, 2_000), (), (10, 11))
    assert decode(encode(made), "worker-1") == made


def test_nothing_measured_is_nothing_to_report() -> None:
    builder = ReportBuilder(BEGIN_NS)
    builder.add(snapshot(1, None, {}))
    assert builder.empty
    builder.add(snapshot(2, Usage(1, 1), {}))
    assert not builder.empty


def test_host_applications_and_zones_add_up_and_predictions_come_along() -> None:
    nginx = HostApplication(name="nginx", priority="koord-prod", qos="LS")
    builder = ReportBuilder(BEGIN_NS)
    for second, cpu in ((1, 100), (2, 300)):
        builder.add(
            UsageSnapshot(
                BEGIN_NS + second * SECOND_NS,
                Usage(1, 1),
                None,
                None,
                {},
                {"nginx": Usage(cpu, 7, 9), "gone": Usage(1, 1)},
                {0: ZoneUsage(Usage(cpu, 5), Usage(None, 3))},
            )
        )
    forecasts = Forecasts(Forecast(250, None), None)
    made = builder.build(SENDER, 1, BEGIN_NS + 2 * SECOND_NS, WALL_NS, (nginx, nginx), forecasts)
    assert made.applications == (ApplicationSum("nginx", "koord-prod", "LS", 400, 2, 18, 2),)
    assert made.zones == (ZoneSum(0, 400, 2, 10, 2, 0, 0, 6, 2),)
    assert (made.reclaimable, made.peak) == (Forecast(250, None), None)
    assert decode(encode(made), "worker-1") == made
