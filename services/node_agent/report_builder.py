"""Builds a node's report from the samples of one interval."""

from collections.abc import Sequence
from typing import NamedTuple

from services.node_agent.collectors.gpu_usage import GpuUsage
from services.node_agent.collectors.usage_sample_types import Usage, UsageSnapshot
from shared.agents.report import ApplicationSum, Forecast, GpuSum, PodSum, Report, Series, ZoneSum
from shared.kube.slo_config import HostApplication

MILLI_NS = 1_000_000


class Sender(NamedTuple):
    """The sender of a report: see `Report`."""

    node: str
    boot: str


class Forecasts(NamedTuple):
    """Predictions for prod pods: see `Report`. None: nothing is predicted."""

    reclaimable: Forecast | None = None
    peak: Forecast | None = None


NO_FORECASTS = Forecasts()


class _SampleSeries:
    """The samples of one series."""

    __slots__ = ("cpu", "memory", "offset_ms")

    def __init__(self) -> None:
        self.offset_ms: list[int] = []
        self.cpu: list[int] = []
        self.memory: list[int] = []

    def add(self, offset_ms: int, usage: Usage | None) -> None:
        if usage is None:
            return
        self.offset_ms.append(offset_ms)
        if usage.cpu is not None:
            self.cpu.append(usage.cpu)
        if (memory := usage.reported) is not None:
            self.memory.append(memory)

    def series(self) -> Series:
        whole = len(self.offset_ms)  # a series with gaps is left out: a report does not record which samples lack it
        cpu, memory = (tuple(values) if len(values) == whole else () for values in (self.cpu, self.memory))
        return Series(tuple(self.offset_ms) if cpu or memory else (), cpu, memory)


class _UsageSums:
    """Sums of samples."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields = [0, 0, 0, 0]  # as ApplicationSum has them

    def add(self, usage: Usage) -> None:
        """Adds a sample."""
        for place, size in ((0, usage.cpu), (2, usage.reported)):
            if size is not None:
                self.fields[place] += size
                self.fields[place + 1] += 1


class ReportBuilder:
    """The samples since `begin_ns`."""

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self._node, self._system, self._best_effort = _SampleSeries(), _SampleSeries(), _SampleSeries()
        self._pods: dict[str, list[int]] = {}
        """Uid -> the fields of PodSum behind `uid`."""
        self._applications: dict[str, _UsageSums] = {}
        self._zones: dict[int, tuple[_UsageSums, _UsageSums]] = {}
        self._gpus: dict[tuple[str, int], tuple[GpuUsage, list[int]]] = {}

    def add(self, snapshot: UsageSnapshot) -> None:
        """Adds the samples of a cycle."""
        offset_ms = (snapshot.at_ns - self.begin_ns) // MILLI_NS
        self._node.add(offset_ms, snapshot.node)
        self._system.add(offset_ms, snapshot.system)
        self._best_effort.add(offset_ms, snapshot.best_effort)
        pods = self._pods
        for uid, (cpu, memory, counted) in snapshot.pods.items():
            sums = pods.get(uid)
            if sums is None:
                sums = pods[uid] = [0] * 6
            if cpu is not None:
                sums[0] += cpu
                sums[1] += 1
                sums[2] = cpu
            if memory is not None:
                size = memory if counted is None else counted
                sums[3] += size
                sums[4] += 1
                sums[5] = size
        for name, usage in snapshot.applications.items():
            self._applications.setdefault(name, _UsageSums()).add(usage)
        for zone, (whole, system) in snapshot.zones.items():
            sums_of_zone = self._zones.setdefault(zone, (_UsageSums(), _UsageSums()))
            sums_of_zone[0].add(whole)
            sums_of_zone[1].add(system)
        for key, gpu in snapshot.gpus.items():
            of_gpu = self._gpus.setdefault(key, (gpu, [0, 0, 0]))[1]
            for place, size in enumerate((gpu.core, gpu.memory, 1)):
                of_gpu[place] += size

    @property
    def empty(self) -> bool:
        """Reports whether there is nothing to report."""
        return not (self._node.offset_ms or self._pods)

    def build(
        self,
        sender: Sender,
        seq: int,
        end_ns: int,
        at_ns: int,
        applications: Sequence[HostApplication] = (),
        forecasts: Forecasts = NO_FORECASTS,
    ) -> Report:
        """Returns the report.

        Args:
            end_ns: the interval's end by the clock of the collection cycles.
            at_ns: the same instant, nanoseconds since the epoch.
            applications: those that the NodeSLO names now.
        """
        return Report(
            node=sender.node,
            boot=sender.boot,
            seq=seq,
            at_ns=at_ns,
            interval_ns=end_ns - self.begin_ns,
            node_usage=self._node.series(),
            system_usage=self._system.series(),
            best_effort_usage=self._best_effort.series(),
            pods=tuple(PodSum(uid, *self._pods[uid]) for uid in sorted(self._pods)),
            applications=tuple(
                ApplicationSum(app.name, app.priority, app.qos, *sums.fields)
                for app in {app.name: app for app in applications}.values()
                if (sums := self._applications.get(app.name)) is not None
            ),
            reclaimable=forecasts.reclaimable,
            peak=forecasts.peak,
            zones=tuple(
                ZoneSum(zone, *whole.fields, *system.fields) for zone, (whole, system) in sorted(self._zones.items())
            ),
            gpus=tuple(
                GpuSum(uid, minor, gpu.uuid, sums[0], sums[1], sums[2], gpu.memory_total)
                for (uid, minor), (gpu, sums) in sorted(self._gpus.items())
            ),
        )
