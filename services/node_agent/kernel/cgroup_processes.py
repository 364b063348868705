"""Processes and threads of a cgroup."""

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
