"""The series `koordlet_node_metric_*`: usage of the node as its NodeMetric has it, from the reports of the last minutes.

Metrics ingest computes the NodeMetric from the same samples. Source: spec/node-agent.md 7.1, 7.5.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_sample_types import SECOND_NS
from shared.agents.report import Report, Series

WINDOW_NS = 300 * SECOND_NS
"""The default aggregate window of a NodeMetric: the agent does not have the one that a user may have set."""
MICRO_IN_MILLI = 1_000


class _Sum(NamedTuple):
    """Samples of one series, added up.

    Attributes:
        name: of the metric, without its prefix.
        zone: number of a NUMA zone; None: of the whole node.
        amount: micro-cores or bytes.
    """

    name: str
    zone: int | None
    resource: str
    amount: int
    samples: int


class NodeMetricSeries:
    """The sums of the newest reports."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, tuple[_Sum, ...]]] = deque()

    def add(self, report: Report) -> None:
        """Adds a report, and drops those that end before the window."""
        self._reports.append((report.at_ns, tuple(_sums(report))))
        while self._reports[0][0] <= report.at_ns - WINDOW_NS:
            self._reports.popleft()

    def gauges(self) -> Iterator[Gauge]:
        """Yields means over the window: cores, in whole milli-cores, and bytes."""
        totals: dict[tuple[str, int | None, str], tuple[int, int]] = {}
        for _, sums in self._reports:
            for name, zone, resource, amount, samples in sums:
                before = totals.get((name, zone, resource), (0, 0))
                totals[name, zone, resource] = (before[0] + amount, before[1] + samples)
        for (name, zone, resource), (amount, count) in totals.items():
            if not count:
                continue
            labels = {} if zone is None else {"numa_node_id": str(zone)}
            cpu = resource == "cpu"
            value = amount // (count * MICRO_IN_MILLI) / 1_000 if cpu else amount // count
            of = {**labels, "resource": resource, "unit": "core" if cpu else "byte"}
            yield Gauge(f"koordlet_node_metric_{name}", of, value)


def _sums(report: Report) -> Iterator[_Sum]:
    yield from _of_series("node_usage", report.node_usage)
    yield from _of_series("system_usage", report.system_usage)
    for zone in report.zones:
        for name, cpu, memory in (
            ("numa_node_usage", (zone.cpu_sum, zone.cpu_count), (zone.memory_sum, zone.memory_count)),
            (
                "numa_system_usage",
                (zone.system_cpu_sum, zone.system_cpu_count),
                (zone.system_memory_sum, zone.system_memory_count),
            ),
        ):
            yield _Sum(name, zone.zone, "cpu", *cpu)
            yield _Sum(name, zone.zone, "memory", *memory)


def _of_series(name: str, series: Series) -> Iterator[_Sum]:
    yield _Sum(name, None, "cpu", sum(series.cpu), len(series.cpu))
    yield _Sum(name, None, "memory", sum(series.memory), len(series.memory))
