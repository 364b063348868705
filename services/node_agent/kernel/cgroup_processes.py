"""Processes and threads of a cgroup."""

import os
import time
from pathlib import Path


class Processes:
    """Reads one node's cgroups and procfs.

    Attributes:
        proc: where procfs is mounted.
    """

    def __init__(self, root: Path, proc: Path) -> None:
        self.proc = proc
        self._v2 = (root / "cgroup.controllers").exists()
        self._base = root if self._v2 else root / "cpu"

    def of(self, folder: str, *, threads: bool = False) -> list[int]:
        """Returns the ids of a cgroup's processes, or threads; none when it is gone."""
        file = ("cgroup.threads" if self._v2 else "tasks") if threads else "cgroup.procs"
        try:
            return sorted(int(pid) for pid in (self._base / folder / file).read_text().split())
        except (OSError, ValueError):
            return []

    def oldest_start_ns(self, folder: str) -> int | None:
        """Returns the start of a cgroup's oldest process, nanoseconds since the epoch; None without one.

        The kernel counts it from the boot, in ticks.
        """
        found = []
        for pid in self.of(folder):
            try:
                text = (self.proc / f"{pid}/stat").read_text()
                found.append(int(text.rpartition(")")[2].split()[_START]))
            except (OSError, ValueError, IndexError):
                continue  # it has ended
        if not found:
            return None
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - min(found) * 10**9 // os.sysconf("SC_CLK_TCK")
        return time.time_ns() - age_ns


_START = 19
"""Place of the start behind the name in `/proc/<pid>/stat`: its field 22."""
