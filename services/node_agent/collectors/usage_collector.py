"""Collects usage: node, pods, best effort, host applications, system, NUMA zones.

The first sample of a counter only primes it.

Source: spec/node-agent.md 1.2.
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from services.node_agent.cgroup import host_application_paths, kubepods_layout
from services.node_agent.cgroup.kubepods_layout import Hierarchy, KubepodsLayout
from services.node_agent.collectors import open_counter_files
from services.node_agent.collectors.gpu_usage import GpuCollector
from services.node_agent.collectors.numa_usage import NumaUsageCollector
from services.node_agent.collectors.open_counter_files import BadFile, OpenFile
from services.node_agent.collectors.usage_meter import MemoryWithCache, Meter, Reading
from services.node_agent.collectors.usage_sample_types import SECOND_NS, Usage, UsageSnapshot
from shared.kube.slo_config import HostApplication

log = logging.getLogger(__name__)

LASTS = 20
"""Intervals after which a counter's last value is too old to compute a rate from."""
WITH_CACHE, WITH_HOT_CACHE = "usageWithPageCache", "usageWithHotPageCache"
"""Collect policies of a NodeMetric; any other counts memory without page cache. Source: spec/node-agent.md 7.1."""

_GONE = (OSError, BadFile)


class Collector:
    """Collects the usage of one node.

    Attributes:
        pods: number of pods that the last cycle found, measured or not.
        folders: uid -> folder of each of them, relative to a controller's.
        hierarchy: the cgroup file systems.
        kube: the layout of pods; None while there are none.
        gpus: None where GPUs are not measured.
        cold: the kernel scans for cold pages (kidled), so hot page cache is distinguished from cold.
    """

    def __init__(
        self,
        proc_root: Path,
        cgroup_root: Path,
        cgroup_parent: str,
        *,
        interval_s: float,
        clock_ns: Callable[[], int],
        tick_hz: int = 0,
        sys_root: Path | None = None,
    ) -> None:
        self.pods = 0
        self.folders: dict[str, str] = {}
        self.cold = False
        self.gpus: GpuCollector | None = None
        self._clock_ns = clock_ns
        self._lasts_ns = int(LASTS * interval_s * SECOND_NS)
        self._logged: set[str] = set()
        self._proc, self._root, self._parent = proc_root, cgroup_root, cgroup_parent.strip("/")
        self._tick_ns = SECOND_NS // (tick_hz or os.sysconf("SC_CLK_TCK"))
        self._policy = ""
        self.hierarchy = self._mounted()
        self.kube: KubepodsLayout | None = None
        self._best_effort: Meter | None = None
        self._meters: dict[str, Meter] = {}
        self._applications: dict[tuple[str, str], Meter] = {}
        self._node = self._node_meter()
        self._zones = (
            None
            if sys_root is None
            else NumaUsageCollector(proc_root, sys_root, self.hierarchy, self._tick_ns, clock_ns)
        )

    def collect(self, applications: Sequence[HostApplication] = (), policy: str = "") -> UsageSnapshot:
        """Runs one collection cycle.

        Args:
            applications: those that the NodeSLO names.
            policy: the NodeMetric's collect policy for memory.
        """
        at_ns = self._clock_ns()
        if policy != self._policy:
            self._set_memory_policy(policy)
        node = self._sampled(self._node, "node")
        pods = self._sample_pods()
        best_effort = self._sample_best_effort()
        hosts = self._sample_applications(applications) if applications or self._applications else {}
        system = None if pods is None else self._system_usage(node, pods, hosts)
        zones = {} if self._zones is None else self._zones.sample(at_ns, system, self.folders)
        gpus = {} if self.gpus is None else self.gpus.sample(self.folders)
        return UsageSnapshot(at_ns, node, system, best_effort, pods or {}, hosts, zones, gpus)

    def close(self) -> None:
        """Closes all files."""
        self._close_meters()
        if self._zones is not None:
            self._zones.close()

    def _close_meters(self) -> None:
        for meter in (self._node, self._best_effort, *self._meters.values(), *self._applications.values()):
            if meter is not None:
                meter.close()
        self._meters.clear()
        self._applications.clear()

    def _set_memory_policy(self, policy: str) -> None:
        """Switches to another policy for memory; every counter is primed again."""
        self._close_meters()
        self._policy, self._best_effort = policy, None
        self._node = self._node_meter()

    @property
    def _with_cache(self) -> bool:
        """Page cache counts as used.

        A policy that counts hot page cache applies only where the kernel scans for cold pages.
        """
        return self._policy == WITH_CACHE or (self._policy == WITH_HOT_CACHE and self.cold)

    def _node_meter(self) -> Meter | None:
        stat, meminfo = OpenFile.maybe(self._proc / "stat"), OpenFile.maybe(self._proc / "meminfo")
        for file, series in ((stat, "cpu"), (meminfo, "memory")):
            if file is None:
                self._warn_once(f"the node's {series} cannot be read, so it is not reported", proc=str(self._proc))
        if stat is None and meminfo is None:
            return None
        counted = None
        if meminfo and self._with_cache:
            counted = MemoryWithCache(
                Reading(meminfo, open_counter_files.memory_with_cache), self._cold_of(self._root / "memory")
            )
        return Meter(
            Reading(stat, open_counter_files.cpu_ticks) if stat else None,
            Reading(meminfo, open_counter_files.memory_used) if meminfo else None,
            self._tick_ns,
            counted,
        )

    def _cold_of(self, folder: Path) -> Reading | None:
        """Returns the counter of a cgroup's cold memory, under the policy that counts hot page cache only.

        Raises:
            OSError: the kernel does not have it.
        """
        if self._policy != WITH_HOT_CACHE:
            return None
        return Reading(OpenFile(folder / "memory.idle_page_stats"), open_counter_files.cold_bytes)

    def _mounted(self) -> Hierarchy:
        found = kubepods_layout.hierarchy(self._root, self._parent)
        for folder, series in ((found.cpu, "cpu"), (found.memory, "memory")):
            if folder is None:
                self._warn_once(
                    f"there is no cgroup controller for {series}; pods are without it", root=str(self._root)
                )
        return found

    def _sample_pods(self) -> dict[str, Usage] | None:
        """Returns samples by uid; None when pods cannot be listed."""
        listed = self.hierarchy.listed
        if listed is None:
            return None
        if self.kube is None and not self._find_kubepods(listed):
            return {}
        assert self.kube is not None
        try:
            found = kubepods_layout.pod_folders(listed, self.kube)
        except OSError as error:
            self._warn_once("the cgroup of all pods is gone; looking for another", error=repr(error))
            self._forget_kubepods()
            return None
        self.pods, self.folders = len(found), found
        for uid in self._meters.keys() - found.keys():
            self._meters.pop(uid).close()
        samples: dict[str, Usage] = {}
        for uid, folder in found.items():
            if (sample := self._sample_pod(uid, folder)) is not None:
                samples[uid] = sample
        return samples

    def _sample_pod(self, uid: str, folder: str) -> Usage | None:
        """Returns one pod's sample.

        A pod whose file cannot be read is skipped, and its files are opened again in the next cycle.
        """
        meter = self._meters.get(uid)
        try:
            if meter is None:
                meter = self._meters[uid] = self._cgroup_meter(folder)
            return meter.sample(self._clock_ns, self._lasts_ns)
        except _GONE as error:
            log.debug("a pod cannot be read", extra={"pod_uid": uid, "error": repr(error)})
            if meter is not None:
                self._meters.pop(uid).close()
            return None

    def _sample_best_effort(self) -> Usage | None:
        if self.kube is None:
            return None
        try:
            if self._best_effort is None:
                self._best_effort = self._cgroup_meter(self.kube.best_effort)
            return self._best_effort.sample(self._clock_ns, self._lasts_ns)
        except _GONE:  # the kubelet has not created it yet, or is re-creating it
            if self._best_effort is not None:
                self._best_effort.close()
                self._best_effort = None
            return None

    def _sample_applications(self, applications: Sequence[HostApplication]) -> dict[str, Usage]:
        """Returns samples by name. An application without a cgroup does not run, and has none."""
        found = {app.name: host_application_paths.cgroup_of(app, self._kube_folders()) for app in applications}
        places = {(name, folder) for name, folder in found.items() if folder is not None}
        for place in self._applications.keys() - places:
            self._applications.pop(place).close()
        samples: dict[str, Usage] = {}
        for place in sorted(places):
            meter = self._applications.get(place)
            try:
                if meter is None:
                    meter = self._applications[place] = self._meter(*self._below_mounts(place[1]))
                sample = meter.sample(self._clock_ns, self._lasts_ns)
            except _GONE:
                if meter is not None:
                    self._applications.pop(place).close()
                continue
            if sample is not None:
                samples[place[0]] = sample
        return samples

    def _kube_folders(self) -> tuple[str, ...] | None:
        """Returns the three cgroups that hold pods, relative to a controller's mount."""
        if self.kube is None:
            return None
        return tuple(f"{self._parent}/{folder}" if self._parent else folder for folder, _, _ in self.kube.folders)

    def _below_mounts(self, folder: str) -> tuple[Path | None, Path | None]:
        """Returns a cgroup's paths in the cpu and in the memory controller."""
        version, cpu, memory = self.hierarchy
        if version == 2:
            return self._root / folder, self._root / folder if memory else None
        return (
            self._root / "cpuacct" / folder if cpu else None,
            self._root / "memory" / folder if memory else None,
        )

    def _sampled(self, meter: Meter | None, whose: str) -> Usage | None:
        if meter is None:
            return None
        try:
            return meter.sample(self._clock_ns, self._lasts_ns)
        except _GONE as error:
            self._warn_once(f"the {whose} cannot be measured", error=repr(error))
            return None

    def _cgroup_meter(self, folder: str) -> Meter:
        """Returns the meter of a folder below the kubelet's cgroup.

        Raises:
            OSError: a file of a controller that the node has cannot be opened.
        """
        _, cpu, memory = self.hierarchy
        return self._meter(cpu / folder if cpu else None, memory / folder if memory else None)

    def _meter(self, cpu: Path | None, memory: Path | None) -> Meter:
        """Returns the meter of one cgroup in both controllers.

        Raises:
            OSError: a file cannot be opened.
        """
        v1 = self.hierarchy.version == 1
        used, cached = (
            (open_counter_files.cgroup_memory_v1, open_counter_files.cgroup_cached_v1)
            if v1
            else (open_counter_files.cgroup_memory_v2, open_counter_files.cgroup_cached_v2)
        )
        cpu_file = OpenFile(cpu / ("cpuacct.usage" if v1 else "cpu.stat")) if cpu else None
        memory_file = None
        try:
            memory_file = OpenFile(memory / "memory.stat") if memory else None
            counted = None
            if memory and memory_file and self._with_cache:
                counted = MemoryWithCache(Reading(memory_file, cached), self._cold_of(memory))
        except OSError:
            for file in (cpu_file, memory_file):
                if file is not None:
                    file.close()
            raise
        return Meter(
            Reading(cpu_file, open_counter_files.cgroup_cpu_v1 if v1 else open_counter_files.cgroup_cpu_v2)
            if cpu_file
            else None,
            Reading(memory_file, used) if memory_file else None,
            counted=counted,
        )

    def _system_usage(self, node: Usage | None, pods: dict[str, Usage], hosts: dict[str, Usage]) -> Usage | None:
        """Returns the usage outside of pods and host applications, at least 0.

        A pod without a sample in this cycle counts as outside. Memory is without page cache, except that of
        applications, which is subtracted as reports count it.
        """
        if node is None:
            return None
        cpu, memory, _ = node
        without_pods = self.kube is None
        if cpu is not None:
            used = sum(each.cpu or 0 for each in (*pods.values(), *hosts.values()))
            cpu = max(0, cpu - used) if without_pods or self.hierarchy.cpu else None
        if memory is not None:
            used = sum(pod.memory or 0 for pod in pods.values()) + sum(app.reported or 0 for app in hosts.values())
            memory = max(0, memory - used) if without_pods or self.hierarchy.memory else None
        return Usage(cpu, memory)

    def _find_kubepods(self, listed: Path) -> bool:
        self.kube = kubepods_layout.kubepods_layout(listed)
        if self.kube is None:
            self._warn_once("there is no cgroup of pods yet; only the node is measured", below=str(listed))
            return False
        details = {"cgroups": f"v{self.hierarchy.version}", "driver": self.kube.driver, "below": str(listed)}
        log.info("pods are measured", extra=details)
        return True

    def _forget_kubepods(self) -> None:
        for meter in (self._best_effort, *self._meters.values()):
            if meter is not None:
                meter.close()
        self._meters.clear()
        self.kube, self._best_effort, self.pods, self.folders = None, None, 0, {}

    def _warn_once(self, text: str, **details: str) -> None:
        """Logs a warning unless its text was logged before."""
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text, extra=details)
