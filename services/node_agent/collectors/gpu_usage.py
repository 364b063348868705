"""GPU usage of the node and its pods. Source: spec/node-agent.md 6.1."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from services.node_agent.devices.nvml_process_messages import NvidiaCard
from shared.kube.instants import SECOND

_POD = re.compile(r"[/-]pod([0-9A-Za-z][0-9A-Za-z._-]*?)(?:\.slice)?(?:/|$)", re.MULTILINE)
MAX_AGE_NS = 5 * SECOND
"""Age from which on a sample counts as absent."""


class GpuUsage(NamedTuple):
    """One sample of one GPU: percent of its cores, bytes."""

    uuid: str
    core: int
    memory: int
    memory_total: int


GpuUses = Mapping[tuple[str, int], GpuUsage]
"""(uid of a pod, or empty for the node as a whole; minor) -> sample."""


class GpuSource(Protocol):
    """The newest cards and samples of NVIDIA's library, as `NvidiaWatch` keeps them."""

    usage: Mapping[str, tuple[tuple[int, int, int], ...]]
    sampled_ns: int

    @property
    def cards(self) -> tuple[NvidiaCard, ...]:
        """The newest list of cards."""


class GpuCollector:
    """Assigns the usage of processes to pods, by the processes' cgroups."""

    def __init__(self, source: GpuSource, proc: Path, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._source, self._proc, self._clock_ns = source, proc, clock_ns

    def sample(self, pods: Mapping[str, object]) -> GpuUses:
        """Returns samples of all GPUs, and of those of the pods that use one; none when there is no recent sample."""
        if self._clock_ns() - self._source.sampled_ns > MAX_AGE_NS:
            return {}
        found: dict[tuple[str, int], GpuUsage] = {}
        for card in self._source.cards:
            if card.uuid not in self._source.usage or card.minor < 0:
                continue
            nothing = GpuUsage(card.uuid, 0, 0, card.memory)
            found["", card.minor] = nothing
            for pid, core, memory in self._source.usage[card.uuid]:
                uid = self._pod_of(pid)
                for key in ("", uid) if uid in pods else ("",):
                    before = found.get((key, card.minor), nothing)
                    # Samples of processes are of different instants; a card has no more than all of its cores.
                    found[key, card.minor] = before._replace(
                        core=min(100, before.core + core), memory=min(card.memory, before.memory + memory)
                    )
        return found

    def _pod_of(self, pid: int) -> str:
        """Returns the uid in the name of the process's cgroup; empty for a process outside of pods."""
        try:
            match = _POD.search((self._proc / f"{pid}/cgroup").read_text())
        except OSError:
            return ""
        return match[1].replace("_", "-") if match else ""
