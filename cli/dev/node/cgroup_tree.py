"""The cgroups of one node: a folder of its own below every controller, and kernel settings that a kubelet changes."""

import contextlib
import os
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.errors import KoordError

ROOT = Path("/sys/fs/cgroup")
PREFIX = "koord-node-"
CPUSET = ("cpuset.cpus", "cpuset.mems")
REMOVED_WITHIN_S = 10.0
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet sets at its start."""


class NoTree(KoordError):
    """This machine's cgroups cannot hold a node."""


class Tree:
    """A folder in each controller of cgroup v1, made on entering and removed, with all below it, on leaving.

    Attributes:
        name: of the folder: the kubelet's cgroupRoot without its slash, the agent's `cgroup_parent`.
    """

    def __init__(self) -> None:
        self.name = f"{PREFIX}{os.getpid()}-{time.monotonic_ns()}"
        self._settings: dict[Path, str] = {}

    def __enter__(self) -> Self:
        _sweep()
        try:
            for controller in _mounted():
                if controller.name == "unified":  # of a hybrid machine; runc makes what it wants there
                    continue
                folder = controller / self.name
                folder.mkdir()
                for file in CPUSET if controller.name == "cpuset" else ():  # empty at first, and then nothing may run
                    (folder / file).write_text((controller / file).read_text())
            for setting in SETTINGS:
                file_ = Path("/proc/sys") / setting
                if file_.exists():
                    self._settings[file_] = file_.read_text()
        except OSError as error:
            self.__exit__(None, None, None)
            raise NoTree(
                f"cannot make cgroups below {ROOT}: {error}; it needs root and cgroups that are writable"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, before in self._settings.items():
            if file.read_text() != before:
                file.write_text(before)
        self._settings.clear()
        for controller in _mounted():
            _remove(controller / self.name)

    def folder(self, controller: str, below: str = "") -> Path:
        """A folder of the tree, such as `kubepods/besteffort`."""
        return ROOT / controller / self.name / below

    def of_pod(self, uid: str, controller: str = "cpu") -> Path | None:
        """The folder of a pod; None while it has none."""
        for qos in ("", "burstable/", "besteffort/"):
            found = self.folder(controller, f"kubepods/{qos}pod{uid}")
            if found.is_dir():
                return found
        return None


def check_cgroups() -> None:
    """Reports whether this machine has cgroups for a node.

    Raises:
        NoTree: it has not.
    """
    if not (ROOT / "cpu").is_dir():
        raise NoTree(f"a real node needs cgroup v1 below {ROOT}: boot with systemd.unified_cgroup_hierarchy=0")


def _mounted() -> list[Path]:
    return sorted(folder for folder in ROOT.iterdir() if folder.is_dir())


def _sweep() -> None:
    """Removes what a test left that was killed."""
    for controller in _mounted():
        for folder in controller.glob(f"{PREFIX}*"):
            match = re.fullmatch(rf"{PREFIX}(\d+)-\d+", folder.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                _remove(folder)


def _remove(top: Path) -> None:
    """Removes a folder with all below it. Processes that have just ended may hold it for a moment."""
    ends = time.monotonic() + REMOVED_WITHIN_S
    while top.is_dir():
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        if time.monotonic() > ends:
            raise NoTree(f"{top} cannot be removed: a process is in it, or in a folder below it")
        if top.is_dir():
            time.sleep(0.05)
