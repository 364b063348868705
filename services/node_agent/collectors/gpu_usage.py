"""GPU usage of the node and its pods. Source: spec/node-agent.md 6.1."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.collectors.nvml import Nvml

_POD = re.compile(r"[/-]pod([0-9A-Za-z][0-9A-Za-z._-]*?)(?:\.slice)?(?:/|$)", re.MULTILINE)


class GpuUsage(NamedTuple):
    """One sample of one GPU: percent of its cores, bytes."""

    uuid: str
    core: int
    memory: int
    memory_total: int


GpuUses = Mapping[tuple[str, int], GpuUsage]
"""(uid of a pod, or empty for the node as a whole; minor) -> sample."""


class GpuCollector:
    """Collects the usage of processes from NVML, and assigns it to pods by the processes' cgroups."""

    def __init__(self, nvml: Nvml, proc: Path) -> None:
        self._nvml, self._proc = nvml, proc

    def sample(self, pods: Mapping[str, object]) -> GpuUses:
        """Returns samples of all GPUs, and of those of the pods that use one."""
        found: dict[tuple[str, int], GpuUsage] = {}
        for gpu in self._nvml.gpus:
            nothing = GpuUsage(gpu.uuid, 0, 0, gpu.memory_total)
            found["", gpu.minor] = nothing
            for process in self._nvml.processes(gpu):
                uid = self._pod_of(process.pid)
                for key in ("", uid) if uid in pods else ("",):
                    before = found.get((key, gpu.minor), nothing)
                    found[key, gpu.minor] = before._replace(
                        core=before.core + process.core, memory=before.memory + process.memory
                    )
        return found

    def close(self) -> None:
        """Closes the library."""
        self._nvml.close()

    def _pod_of(self, pid: int) -> str:
        """Returns the uid in the name of the process's cgroup; empty for a process outside of pods."""
        try:
            match = _POD.search((self._proc / f"{pid}/cgroup").read_text())
        except OSError:
            return ""
        return match[1].replace("_", "-") if match else ""
