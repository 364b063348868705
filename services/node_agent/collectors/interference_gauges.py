"""Gauges that show interference between pods, each at its own interval: throttling, pressure, cycles, caches.

They are on the agent's metrics page, not in reports.

Source: spec/node-agent.md 1.1, 1.2, 7.5.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors import pressure_stall, resctrl_monitor
from services.node_agent.collectors.open_counter_files import number, read_once
from services.node_agent.collectors.perf_events import CYCLES, INSTRUCTIONS, Counters, Event, PerfUnavailable
from services.node_agent.collectors.usage_sample_types import SECOND_NS
from services.node_agent.qos_manager.strategies.resctrl import GROUPS

log = logging.getLogger(__name__)

THROTTLED_INTERVAL_NS = 30 * SECOND_NS
PRESSURE_INTERVAL_NS = 10 * SECOND_NS
CACHES_INTERVAL_NS = 10 * SECOND_NS
CYCLES_INTERVAL_NS, CYCLES_WINDOW_NS = 60 * SECOND_NS, 10 * SECOND_NS


class Gauge(NamedTuple):
    """One number with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


class _LabelledCgroup(NamedTuple):
    """A cgroup with the labels of its pod or container."""

    folder: str
    labels: Mapping[str, str]
    is_pod: bool


class InterferenceGauges:
    """Samples the node's pods, and keeps the newest values.

    Attributes:
        cycles: uid -> (cycles, instructions) of a pod's containers in the last complete window.
        continuous: count cycles without pauses, which interference detection needs.
    """

    def __init__(
        self,
        root: Path,
        sys: Path,
        version: int,
        gates: Mapping[str, bool],
        cpus: Iterable[int],
        clock_ns: Callable[[], int],
        events: tuple[Event, Event] = (CYCLES, INSTRUCTIONS),
    ) -> None:
        self._root, self._resctrl = root, sys / "fs/resctrl"
        self._v1 = version == 1
        self._cpus = tuple(sorted(cpus))
        self._clock_ns = clock_ns
        self._events = events
        self._gauges: dict[str, list[Gauge]] = {}
        self._due: dict[str, int] = {}
        self._periods: dict[str, tuple[int, int]] = {}
        self.cycles: dict[str, tuple[int, int]] = {}
        self.continuous = False
        self._counting: list[tuple[_LabelledCgroup, Counters]] = []
        self._steps: list[tuple[str, int, Callable[[list[_LabelledCgroup]], list[Gauge]]]] = [
            ("throttled", THROTTLED_INTERVAL_NS, self._throttled)
        ]
        if gates["PSICollector"]:
            self._steps.append(("pressure", PRESSURE_INTERVAL_NS, self._pressure))
        if gates["ResctrlCollector"]:
            self._steps.append(("caches", CACHES_INTERVAL_NS, self._caches))
        self._counts_cycles = gates["CPICollector"]

    def run_cycle(self, pods: Sequence[PodCgroups]) -> None:
        """Runs the collectors whose interval has passed."""
        now_ns = self._clock_ns()
        cgroups: list[_LabelledCgroup] | None = None
        for name, every_ns, step in self._steps:
            if now_ns >= self._due.get(name, 0):
                self._due[name] = now_ns + every_ns
                cgroups = list(_labelled_cgroups(pods)) if cgroups is None else cgroups
                self._gauges[name] = step(cgroups)
        if self._counts_cycles and now_ns >= self._due.get("cycles", 0):
            self._cycles(list(_labelled_cgroups(pods)), now_ns)

    def gauges(self) -> Iterator[Gauge]:
        """Yields the newest values."""
        for found in self._gauges.values():
            yield from found

    def close(self) -> None:
        """Closes the counters."""
        for _, counters in self._counting:
            counters.close()
        self._counting = []

    def _throttled(self, cgroups: list[_LabelledCgroup]) -> list[Gauge]:
        """Returns the share of throttled periods since the last sample; 0 where no period passed."""
        found, now = [], dict[str, tuple[int, int]]()
        base = f"{self._root}/cpu" if self._v1 else f"{self._root}"
        for cgroup in cgroups:
            try:
                text = read_once(f"{base}/{cgroup.folder}/cpu.stat")
                periods, throttled = number(text, b"nr_periods"), number(text, b"nr_throttled")
            except (OSError, ValueError):
                continue
            now[cgroup.folder] = (periods, throttled)
            if (before := self._periods.get(cgroup.folder)) is not None:
                name = "koord_node_agent_pod_throttled" if cgroup.is_pod else "koord_node_agent_container_throttled"
                passed = periods - before[0]
                found.append(Gauge(name, cgroup.labels, (throttled - before[1]) / passed if passed > 0 else 0.0))
        self._periods = now
        return found

    def _pressure(self, cgroups: list[_LabelledCgroup]) -> list[Gauge]:
        base = self._root / "cpuacct" if self._v1 else self._root
        found = []
        for cgroup in cgroups:
            name = "koordlet_pod_psi" if cgroup.is_pod else "koordlet_container_psi"
            for resource, stall in pressure_stall.cgroup_pressure(f"{base}/{cgroup.folder}").items():
                degrees = {"some": (stall.some, *stall.some_longer)}
                if stall.has_full:
                    degrees["full"] = (stall.full, *stall.full_longer)
                for degree, values in degrees.items():
                    for precision, value in zip(pressure_stall.AVERAGES, values, strict=True):
                        labels = {
                            **cgroup.labels,
                            "psi_resource_type": resource,
                            "psi_precision": precision,
                            "psi_degree": degree,
                            "cpu_full_supported": str(stall.has_full).lower(),
                        }
                        found.append(Gauge(name, labels, value))
        return found

    def _caches(self, _: list[_LabelledCgroup]) -> list[Gauge]:
        found = []
        for group, cache, kind, value in resctrl_monitor.cache_usage(self._resctrl, GROUPS):
            labels = {"qos": group, "cache_id": str(cache)}
            if kind == "llc":
                found.append(Gauge("koordlet_resctrl_llc_occupancy", labels, value))
            else:
                found.append(Gauge("koordlet_resctrl_memory_bandwidth", {**labels, "mb_type": kind}, value))
        return found

    def _cycles(self, cgroups: list[_LabelledCgroup], now_ns: int) -> None:
        """Starts counting, or reads the counters and stops."""
        if self._counting:
            gauges = []
            self.cycles = {}
            for cgroup, counters in self._counting:
                cycles, instructions = counters.totals()
                before = self.cycles.get(uid := cgroup.labels["pod_uid"], (0, 0))
                self.cycles[uid] = before[0] + cycles, before[1] + instructions
                for field, value in (("cycles", cycles), ("instructions", instructions)):
                    gauges.append(Gauge("koordlet_container_cpi", {**cgroup.labels, "cpi_field": field}, value))
            self.close()
            self._gauges["cycles"] = gauges
            self._due["cycles"] = now_ns + (0 if self.continuous else CYCLES_INTERVAL_NS - CYCLES_WINDOW_NS)
            return
        self._due["cycles"] = now_ns + CYCLES_WINDOW_NS
        base = self._root / "perf_event" if self._v1 else self._root
        for cgroup in cgroups:
            if cgroup.is_pod:
                continue
            try:
                self._counting.append((cgroup, Counters(base / cgroup.folder, self._events, self._cpus)))
            except PerfUnavailable as error:
                log.warning("cycles and instructions are not counted", extra={"why": str(error)})
                self._counts_cycles = False
                self.close()
                return
            except OSError:
                continue  # it has ended, or v1 has no controller perf_event


def _labelled_cgroups(pods: Sequence[PodCgroups]) -> Iterator[_LabelledCgroup]:
    for each in pods:
        yield _LabelledCgroup(each.folder, each.labels, is_pod=True)
        for name, cid in each.node_pod.ids.items():
            yield _LabelledCgroup(each.containers[cid], each.labels_of(name), is_pod=False)
