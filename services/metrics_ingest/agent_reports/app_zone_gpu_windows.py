"""Metrics of a report besides node and pod usage: host applications, NUMA zones, GPUs, and the agent's predictions.

Most nodes have few of them, so they are kept as received and aggregated when a report is recorded.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from services.metrics_ingest.agent_reports.node_usage_series import MICRO_IN_MILLI
from shared.agents.report import ApplicationSum, Forecast, GpuSum, Report, ZoneSum
from shared.events.metrics import ApplicationReported, GpuReported, Usage, ZoneReported


class ExtraMetrics(NamedTuple):
    """The extra metrics of a node over a window.

    Attributes:
        applications, reclaimable, peak, zones: as in NodeReported.
        gpus: likewise, but with uids of pods.
    """

    applications: tuple[ApplicationReported, ...] | None = None
    reclaimable: Usage | None = None
    peak: Usage | None = None
    zones: tuple[ZoneReported, ...] = ()
    gpus: tuple[GpuReported, ...] = ()


NOTHING = ExtraMetrics()


class _Piece(NamedTuple):
    """The extra metrics of one report.

    Attributes:
        at_ns: end of the report's interval.
        middle_ns: middle of the report's interval.
    """

    at_ns: int
    middle_ns: int
    applications: tuple[ApplicationSum, ...] | None
    zones: tuple[ZoneSum, ...]
    gpus: tuple[GpuSum, ...]
    reclaimable: Forecast | None
    peak: Forecast | None


def has_extra_metrics(report: Report) -> bool:
    """Reports whether a report has any of these metrics."""
    return report.applications is not None or report.reclaimable is not None or bool(report.zones or report.gpus)


class ExtraMetricsWindow:
    """The extra metrics of a node's newest reports."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()

    def add(self, report: Report, middle_ns: int) -> None:
        """Adds a report; reports may come in any order."""
        piece = _Piece(
            report.at_ns, middle_ns, report.applications, report.zones, report.gpus, report.reclaimable, report.peak
        )
        self._pieces.append(piece)
        if len(self._pieces) > 1 and piece.middle_ns < self._pieces[-2].middle_ns:
            self._pieces = deque(sorted(self._pieces, key=lambda each: each.middle_ns))

    def drop_before(self, earliest_ns: int) -> None:
        """Drops reports whose middle lies before an instant."""
        while self._pieces and self._pieces[0].middle_ns < earliest_ns:
            self._pieces.popleft()

    def measure(self) -> ExtraMetrics:
        """Aggregates the reports.

        The newest one decides which applications, zones and GPUs exist, and what is predicted.
        """
        if not self._pieces:
            return NOTHING
        newest = max(self._pieces, key=lambda piece: piece.at_ns)
        # Zones are sampled less often than reports are sent, so the newest report with zones counts.
        zoned = max((piece for piece in self._pieces if piece.zones), key=lambda piece: piece.at_ns, default=newest)
        return ExtraMetrics(
            None if newest.applications is None else tuple(self._applications(newest.applications)),
            _usage(newest.reclaimable),
            _usage(newest.peak),
            tuple(self._zones(zoned.zones)),
            tuple(self._gpus(newest.gpus)),
        )

    def _applications(self, newest: Iterable[ApplicationSum]) -> Iterable[ApplicationReported]:
        for each in sorted(newest, key=lambda one: one.name):
            same = [one for piece in self._pieces for one in piece.applications or () if one.name == each.name]
            cpu = _mean(((one.cpu_sum, one.cpu_count) for one in same), MICRO_IN_MILLI)
            memory = _mean((one.memory_sum, one.memory_count) for one in same)
            if cpu is not None or memory is not None:
                yield ApplicationReported(each.name, each.priority, each.qos, cpu, memory)

    def _zones(self, newest: Iterable[ZoneSum]) -> Iterable[ZoneReported]:
        for each in sorted(newest, key=lambda one: one.zone):
            same = [one for piece in self._pieces for one in piece.zones if one.zone == each.zone]
            usage = Usage(
                _mean(((one.cpu_sum, one.cpu_count) for one in same), MICRO_IN_MILLI),
                _mean((one.memory_sum, one.memory_count) for one in same),
            )
            system = Usage(
                _mean(((one.system_cpu_sum, one.system_cpu_count) for one in same), MICRO_IN_MILLI),
                _mean((one.system_memory_sum, one.system_memory_count) for one in same),
            )
            if usage != Usage():
                yield ZoneReported(each.zone, usage, system)

    def _gpus(self, newest: Iterable[GpuSum]) -> Iterable[GpuReported]:
        for each in sorted(newest, key=lambda one: (one.pod_uid, one.minor)):
            key = (each.pod_uid, each.minor)
            same = [one for piece in self._pieces for one in piece.gpus if (one.pod_uid, one.minor) == key]
            core = _mean((one.core_sum, one.count) for one in same)
            memory = _mean((one.memory_sum, one.count) for one in same)
            if core is not None and memory is not None:
                yield GpuReported(each.pod_uid, each.minor, each.uuid, core, memory, each.memory_total)


def _mean(amounts: Iterable[tuple[int, int]], unit: int = 1) -> int | None:
    """Returns the mean of (sum, count) pairs in whole units, truncated; None without samples."""
    total = count = 0
    for size, samples in amounts:
        total += size
        count += samples
    return total // (count * unit) if count else None


def _usage(forecast: Forecast | None) -> Usage | None:
    return None if forecast is None else Usage(forecast.cpu_milli, forecast.memory)
