"""Usage of each NUMA zone, and the part of it outside of pods.

Sampled at a longer interval, as counters lose nothing by it.

Source: spec/node-agent.md 1.2 (Node NUMA, Pod NUMA, System NUMA).
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from services.node_agent.cgroup.kubepods_layout import Hierarchy
from services.node_agent.collectors import numa_counters as counters
from services.node_agent.collectors.open_counter_files import BadFile, OpenFile
from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage, ZoneUsage
from shared.domain.cpu_set import BadCpuList, parse_cpus

COLLECT_INTERVAL_NS = 30 * SECOND_NS
_ZONE = re.compile(r"node(\d+)").fullmatch
_GONE = (OSError, BadFile, ValueError)


class NumaUsageCollector:
    """The zones of one node. Numbers with a gap, or a zone that cannot be read, leave all zones unmeasured."""

    def __init__(self, proc: Path, sys: Path, hierarchy: Hierarchy, tick_ns: int, clock_ns: Callable[[], int]) -> None:
        self._stat = OpenFile.maybe(proc / "stat")
        self._memory = hierarchy.memory
        self._v1 = hierarchy.version == 1
        self._tick_ns, self._clock_ns = tick_ns, clock_ns
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._cpus, self._meminfo = _found(sys / "devices/system/node")
        self._next_ns = 0
        self._ticks: dict[int, int] = {}
        self._ticks_ns = 0
        self._system = [0, 0]

    def sample(self, at_ns: int, system: Usage | None, folders: Mapping[str, str]) -> dict[int, ZoneUsage]:
        """Returns samples by zone, every COLLECT_INTERVAL_NS; nothing in between, and on the first call.

        Args:
            system: of this cycle. Usage outside of pods is divided among zones in proportion to their cpu usage.
            folders: of the pods, below the kubelet's cgroup.
        """
        if self._stat is None or not self._meminfo:
            return {}
        if system is not None and system.cpu is not None:
            self._system[0] += system.cpu
            self._system[1] += 1
        if at_ns < self._next_ns:
            return {}
        self._next_ns = at_ns + COLLECT_INTERVAL_NS
        try:
            cpu = self._cpu(self._stat)
            memory = {zone: counters.zone_memory(file) for zone, file in self._meminfo.items()}
        except _GONE:
            return {}
        if cpu is None:
            return {}
        return dict(self._shared(cpu, memory, self._of_pods(folders)))

    def close(self) -> None:
        """Closes the files."""
        for file in (self._stat, *self._meminfo.values()):
            if file is not None:
                file.close()
        self._stat, self._meminfo = None, {}

    def _cpu(self, stat: OpenFile) -> dict[int, int] | None:
        """Returns micro-cores by zone since the last call; None on the first one."""
        ticks, now_ns = counters.ticks_by_cpu(stat), self._clock_ns()
        before, since_ns = self._ticks, now_ns - self._ticks_ns
        self._ticks, self._ticks_ns = ticks, now_ns
        if not before or since_ns <= 0:
            return None
        moved = {cpu: max(count - before.get(cpu, count), 0) for cpu, count in ticks.items()}
        return {
            zone: sum(moved.get(cpu, 0) for cpu in cpus) * self._tick_ns * MICRO // since_ns
            for zone, cpus in self._cpus.items()
        }

    def _of_pods(self, folders: Mapping[str, str]) -> dict[int, int]:
        """Returns bytes of all pods by zone."""
        total = dict.fromkeys(self._meminfo, 0)
        if self._memory is None:
            return total
        for folder in folders.values():
            try:
                file = OpenFile(f"{self._memory}/{folder}/memory.numa_stat")
            except OSError:
                continue
            try:
                pages = (counters.numa_pages_v1 if self._v1 else counters.numa_pages_v2)(file)
            except _GONE:
                continue
            finally:
                file.close()
            for zone, count in pages.items():
                if zone in total:
                    total[zone] += count * self._page
        return total

    def _shared(
        self, cpu: Mapping[int, int], memory: Mapping[int, int], pods: Mapping[int, int]
    ) -> Mapping[int, ZoneUsage]:
        outside, rounds = self._system
        self._system = [0, 0]
        whole, system = sum(cpu.values()), outside // rounds if rounds else None
        return {
            zone: ZoneUsage(
                Usage(cpu[zone], memory[zone]),
                # Multiplied before divided: all integers, and the ratio alone would be truncated to 0.
                Usage(
                    None if system is None else system * cpu[zone] // whole if whole else 0,
                    max(memory[zone] - pods[zone], 0),
                ),
            )
            for zone in memory
        }


def _found(base: Path) -> tuple[dict[int, frozenset[int]], dict[int, OpenFile]]:
    """Returns the CPUs and the meminfo file of each zone; zones without memory (of devices) are left out."""
    cpus: dict[int, frozenset[int]] = {}
    files: dict[int, OpenFile] = {}
    try:
        for folder in sorted(base.iterdir()):
            if match := _ZONE(folder.name):
                file = OpenFile(folder / "meminfo")
                if counters.zone_total(file) > 0:
                    cpus[int(match[1])] = parse_cpus((folder / "cpulist").read_text().strip())
                    files[int(match[1])] = file
                else:
                    file.close()
    except (*_GONE, BadCpuList):
        pass  # a kernel without zones, or with an unexpected layout
    else:
        if sorted(files) == list(range(len(files))):
            return cpus, files
    for file in files.values():
        file.close()
    return {}, {}
