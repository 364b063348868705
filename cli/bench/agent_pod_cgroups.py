"""Pod-like cgroups on this machine, laid out as the kubelet does, each with a process that works a little."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from shared.errors import KoordError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuacct", "memory", "cpu", "cpuset")
QOS = ("", "burstable", "besteffort")

# Joins its cgroups, so that all it holds is counted there; then burns for so many milliseconds of each second.
_WORK = """\
import sys, time
for procs in sys.argv[3:]:
    with open(procs, "w") as file:
        file.write("0")
burn_s, held = int(sys.argv[1]) / 1000, bytearray(b"x") * (int(sys.argv[2]) << 20)
while True:
    ends = time.process_time() + burn_s
    while time.process_time() < ends:
        pass
    time.sleep(1 - burn_s)
"""


class NoCgroups(KoordError):
    """This process may not make cgroups here."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"cannot make cgroups below {ROOT}: {error}; run it as root, on a machine whose cgroups are writable"
        )


class PodCgroups:
    """A kubepods tree below a parent of its own; taken away again on exit, with all processes in it.

    Attributes:
        parent: for KOORD_NODE_AGENT_CGROUP_PARENT.
        uids: of the pods, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.parent = f"koord-{os.getpid()}-{time.monotonic_ns()}"
        self.uids: list[str] = []
        self._v2 = (ROOT / "cgroup.controllers").exists()
        found = [ROOT] if self._v2 else [ROOT / name for name in CONTROLLERS if (ROOT / name).is_dir()]
        self._trees = [tree / self.parent for tree in found]
        self._folders: list[Path] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for tree in self._trees:
                for folder in ("", "kubepods", *(f"kubepods/{qos}" for qos in QOS[1:])):
                    self._make(tree / folder)
        except OSError as error:
            self.__exit__()
            raise NoCgroups(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        for uid in list(self._processes):
            self._end(uid)
        for folder in reversed(self._folders):
            _remove(folder)

    def add(
        self, *, qos: str = "besteffort", burn_ms: int = 0, held_mib: int = 1, uid: str = "", container: str = ""
    ) -> str:
        """A pod whose process burns `burn_ms` of each second; its uid, which is a new one unless it is given.

        Args:
            container: name of a cgroup below the pod's, in which the process is then.
        """
        uid = uid or f"00000000-0000-4000-8000-{len(self.uids):012}"
        self.uids.append(uid)
        places = [tree / "kubepods" / qos / f"pod{uid}" for tree in self._trees]
        for folder in places:
            self._make(folder)
        if container:
            places = [folder / container for folder in places]
            for folder in places:
                self._make(folder)
        joins = [str(folder / "cgroup.procs") for folder in places]
        command = [sys.executable, "-I", "-S", "-c", _WORK, str(burn_ms), str(held_mib), *joins]
        self._processes[uid] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        return uid

    def limit(self, container: str, *, milli: int) -> None:
        """Limits a container and its pod to so many milli-cores, as the kubelet does."""
        file = "cpu.max" if self._v2 else "cpu.cfs_quota_us"
        for folder in [folder for folder in self._folders if folder.name == container]:
            for place in (folder.parent, folder):
                if (place / file).exists():
                    (place / file).write_text(str(milli * 100))

    def remove(self, uid: str) -> None:
        """Ends a pod's process and takes its cgroup away."""
        self._end(uid)
        for folder in [folder for folder in reversed(self._folders) if f"pod{uid}" in folder.parts]:
            self._folders.remove(folder)
            _remove(folder)

    def _make(self, folder: Path) -> None:
        folder.mkdir()
        self._folders.append(folder)
        if self._v2 and not any(part.startswith("pod") for part in folder.parts):
            (folder / "cgroup.subtree_control").write_text("+memory +cpu")
        if not self._v2 and ROOT / "cpuset" in folder.parents:
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty at first, and then nothing may run there
                (folder / file).write_text((folder.parent / file).read_text())

    def _end(self, uid: str) -> None:
        process = self._processes.pop(uid)
        process.kill()
        process.wait()


def _remove(folder: Path) -> None:
    for _ in range(100):  # the kernel removes an ended process from its cgroup a moment after it can be waited for
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)
