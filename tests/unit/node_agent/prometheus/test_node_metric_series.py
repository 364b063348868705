"""The series of the NodeMetric: means over five minutes, of the node and its NUMA zones."""

from services.node_agent.prometheus.exposition import TEXTS
from services.node_agent.prometheus.node_metric_series import NodeMetricSeries
from shared.agents.report import Report, Series, ZoneSum
from shared.kube.instants import SECOND

START_NS = 1_780_000_000 * SECOND


def report(number: int, *cores: float, zones: tuple[ZoneSum, ...] = ()) -> Report:
    """Returns a report of a minute."""
    cpu = tuple(int(each * 1_000_000) for each in cores)
    usage = Series(tuple(range(len(cpu))), cpu, tuple(each * 1_000 for each in cpu))
    system = Series(usage.offset_ms, tuple(each // 2 for each in cpu), ())
    return Report("n", "b", number, START_NS + number * 60 * SECOND, 60 * SECOND, usage, system, zones=zones)


def shown(series: NodeMetricSeries) -> dict[tuple[str, ...], float]:
    found = list(series.gauges())
    assert {each.name for each in found} <= TEXTS.keys()
    return {(each.name.removeprefix("koordlet_node_metric_"), *each.labels.values()): each.value for each in found}


def test_means_of_all_samples_of_the_window() -> None:
    series = NodeMetricSeries()
    assert shown(series) == {}
    series.add(report(1, 1, 2, 3))
    series.add(report(2, 4.0005))
    assert shown(series) == {
        ("node_usage", "cpu", "core"): 2.5,
        ("node_usage", "memory", "byte"): 2_500_124_750,
        ("system_usage", "cpu", "core"): 1.25,
    }


def test_reports_older_than_the_window_do_not_count() -> None:
    series = NodeMetricSeries()
    for number in range(1, 8):
        series.add(report(number, number))
    assert shown(series)["node_usage", "cpu", "core"] == 5


def test_numa_zones_have_series_of_their_own() -> None:
    series = NodeMetricSeries()
    series.add(report(1, 1, zones=(ZoneSum(0, 4_000_000, 2, 6, 2, 1_000_000, 2), ZoneSum(1, 500_000, 1))))
    found = shown(series)
    assert found["numa_node_usage", "0", "cpu", "core"] == 2
    assert found["numa_node_usage", "0", "memory", "byte"] == 3
    assert found["numa_system_usage", "0", "cpu", "core"] == 0.5
    assert found["numa_node_usage", "1", "cpu", "core"] == 0.5
    assert ("numa_node_usage", "1", "memory", "byte") not in found
