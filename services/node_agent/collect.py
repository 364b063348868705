"""One round of measuring: node, pods, best effort, system. The first sample of any counter only primes it.

All of it is integers: micro-cores over the time between two reads, bytes. Source: spec/node-agent.md 1.2.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from services.node_agent import cgroups, counters
from services.node_agent.cgroups import Hierarchy, KubePods
from services.node_agent.counters import BadFile, Held

log = logging.getLogger(__name__)

SECOND_NS = 1_000_000_000
MICRO = 1_000_000
LASTS = 20
"""A counter's last value is of use for so many intervals."""

_GONE = (OSError, BadFile)


class Usage(NamedTuple):
    """One sample: micro-cores since the sample before, and bytes; None where this node does not measure it."""

    cpu: int | None
    memory: int | None


class Round(NamedTuple):
    """What one round found; None and absent pods: no sample.

    Attributes:
        at_ns: of the clock that was given, when the round began.
        pods: uid -> sample.
    """

    at_ns: int
    node: Usage | None
    system: Usage | None
    best_effort: Usage | None
    pods: dict[str, Usage]


class Reading(NamedTuple):
    """A file and how a number is read out of it."""

    file: Held
    parse: Callable[[Held], int]


class Meter:
    """A CPU counter and a memory gauge of one thing, their files held open."""

    __slots__ = ("_at_ns", "_count", "_cpu", "_memory", "_unit_ns")

    def __init__(self, cpu: Reading | None, memory: Reading | None, unit_ns: int = 1) -> None:
        """Begin unprimed.

        Args:
            cpu, memory: None when the node does not measure it.
            unit_ns: what one unit of the counter is.
        """
        self._cpu = cpu
        self._memory = memory
        self._unit_ns = unit_ns
        self._count = 0
        self._at_ns = -1

    def sample(self, clock_ns: Callable[[], int], lasts_ns: int) -> Usage | None:
        """A sample; None when this one primes: the first, one after too long a time, one of a counter that began anew.

        Raises:
            OSError, BadFile: it cannot be read.
        """
        memory = None if self._memory is None else self._memory.parse(self._memory.file)
        if self._cpu is None:
            primed, self._at_ns = self._at_ns >= 0, 0
            return Usage(None, memory) if primed else None
        count = self._cpu.parse(self._cpu.file)
        now = clock_ns()
        before, since = self._count, now - self._at_ns
        primed = self._at_ns >= 0 and count >= before and 0 < since <= lasts_ns
        self._count, self._at_ns = count, now
        return Usage((count - before) * self._unit_ns * MICRO // since, memory) if primed else None

    def close(self) -> None:
        """Let go of the files."""
        for reading in (self._cpu, self._memory):
            if reading is not None:
                reading.file.close()


class Collector:
    """Measures one node, round by round.

    Attributes:
        pods: how many pods the last round found, measured or not.
        folders: uid -> folder of each of them, relative to a controller's.
        hierarchy: the cgroup file systems.
        kube: how pods are laid out; None while there are none.
    """

    def __init__(
        self,
        proc_root: Path,
        cgroup_root: Path,
        cgroup_parent: str,
        *,
        every_s: float,
        clock_ns: Callable[[], int],
        tick_hz: int = 0,
    ) -> None:
        self.pods = 0
        self.folders: dict[str, str] = {}
        self._clock_ns = clock_ns
        self._lasts_ns = int(LASTS * every_s * SECOND_NS)
        self._said: set[str] = set()
        self._where = (cgroup_root, cgroup_parent)
        self.hierarchy = self._mounted()
        self.kube: KubePods | None = None
        self._best_effort: Meter | None = None
        self._meters: dict[str, Meter] = {}
        self._node = self._node_meter(proc_root, SECOND_NS // (tick_hz or os.sysconf("SC_CLK_TCK")))

    def collect(self) -> Round:
        """Measure everything once."""
        at_ns = self._clock_ns()
        node = self._sampled(self._node, "node")
        pods = self._sample_pods()
        best_effort = self._sample_best_effort()
        return Round(at_ns, node, None if pods is None else self._rest(node, pods), best_effort, pods or {})

    def close(self) -> None:
        """Let go of all files."""
        for meter in (self._node, self._best_effort, *self._meters.values()):
            if meter is not None:
                meter.close()
        self._meters.clear()

    def _node_meter(self, proc: Path, tick_ns: int) -> Meter | None:
        stat, meminfo = Held.maybe(proc / "stat"), Held.maybe(proc / "meminfo")
        for file, series in ((stat, "cpu"), (meminfo, "memory")):
            if file is None:
                self._say(f"the node's {series} cannot be read, so it is not reported", proc=str(proc))
        if stat is None and meminfo is None:
            return None
        return Meter(
            Reading(stat, counters.cpu_ticks) if stat else None,
            Reading(meminfo, counters.memory_used) if meminfo else None,
            tick_ns,
        )

    def _mounted(self) -> Hierarchy:
        found = cgroups.hierarchy(Path(self._where[0]), self._where[1])
        for folder, series in ((found.cpu, "cpu"), (found.memory, "memory")):
            if folder is None:
                self._say(f"there is no cgroup controller for {series}; pods are without it", root=str(self._where[0]))
        return found

    def _sample_pods(self) -> dict[str, Usage] | None:
        """Samples by uid; None when pods cannot be told."""
        listed = self.hierarchy.listed
        if listed is None:
            return None
        if self.kube is None and not self._find_kube(listed):
            return {}
        assert self.kube is not None
        try:
            found = cgroups.pods(listed, self.kube)
        except OSError as error:
            self._say("the cgroup of all pods is gone; looking for another", error=repr(error))
            self._forget_kube()
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
        """One pod's sample; a pod whose file cannot be read is skipped, and opened anew the next time."""
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
        except _GONE:  # the kubelet has not made it yet, or makes it anew
            if self._best_effort is not None:
                self._best_effort.close()
                self._best_effort = None
            return None

    def _sampled(self, meter: Meter | None, whose: str) -> Usage | None:
        if meter is None:
            return None
        try:
            return meter.sample(self._clock_ns, self._lasts_ns)
        except _GONE as error:
            self._say(f"the {whose} cannot be measured", error=repr(error))
            return None

    def _cgroup_meter(self, folder: str) -> Meter:
        """The meter of a cgroup.

        Raises:
            OSError: a file of a controller that the node has cannot be opened.
        """
        version, cpu, memory = self.hierarchy
        v1 = version == 1
        cpu_file = Held(cpu / folder / ("cpuacct.usage" if v1 else "cpu.stat")) if cpu else None
        try:
            memory_file = Held(memory / folder / "memory.stat") if memory else None
        except OSError:
            if cpu_file is not None:
                cpu_file.close()
            raise
        return Meter(
            Reading(cpu_file, counters.cgroup_cpu_v1 if v1 else counters.cgroup_cpu_v2) if cpu_file else None,
            Reading(memory_file, counters.cgroup_memory_v1 if v1 else counters.cgroup_memory_v2)
            if memory_file
            else None,
        )

    def _rest(self, node: Usage | None, pods: dict[str, Usage]) -> Usage | None:
        """What the node uses outside of pods, at least 0; a pod on its first sample counts as outside for that round."""
        if node is None:
            return None
        cpu, memory = node
        without_pods = self.kube is None
        if cpu is not None:
            used = sum(pod.cpu or 0 for pod in pods.values())
            cpu = max(0, cpu - used) if without_pods or self.hierarchy.cpu else None
        if memory is not None:
            used = sum(pod.memory or 0 for pod in pods.values())
            memory = max(0, memory - used) if without_pods or self.hierarchy.memory else None
        return Usage(cpu, memory)

    def _find_kube(self, listed: Path) -> bool:
        self.kube = cgroups.kube_pods(listed)
        if self.kube is None:
            self._say("there is no cgroup of pods yet; only the node is measured", below=str(listed))
            return False
        details = {"cgroups": f"v{self.hierarchy.version}", "driver": self.kube.driver, "below": str(listed)}
        log.info("pods are measured", extra=details)
        return True

    def _forget_kube(self) -> None:
        for meter in (self._best_effort, *self._meters.values()):
            if meter is not None:
                meter.close()
        self._meters.clear()
        self.kube, self._best_effort, self.pods, self.folders = None, None, 0, {}

    def _say(self, text: str, **details: str) -> None:
        """A warning, once."""
        if text not in self._said:
            self._said.add(text)
            log.warning(text, extra=details)
