"""Cgroups to write to: the kernel's own where this machine allows it, and plain files in the layout of each version."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from services.node_agent.cgroup.cgroup_knobs import KNOBS
from services.node_agent.cgroup.executor import CgroupTree, Executor
from services.node_agent.cgroup.original_values import OriginalValues

KERNEL = Path("/sys/fs/cgroup")

OWN_KERNEL = "KOORD_TEST_OWN_KERNEL"
"""Set to 1 in a guest whose v2 hierarchy belongs to the tests (tests/node/test_guest_cgroups.py)."""
KERNEL_V2 = "kernel-v2"

KINDS = (1, 2, KERNEL_V2) if os.environ.get(OWN_KERNEL) == "1" else (1, 2)
"""The trees of a parametrised test: files of each version, and in a guest also its kernel's."""
CONTROLLERS = "+cpuset +cpu +io +memory"

V1_FILES = {
    "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_burst_us": "0", "cpu.idle": "0", "cpu.bvt_warp_ns": "0",
    "cpuset.cpus": "0-7", "memory.limit_in_bytes": "9223372036854771712", "memory.min": "0", "memory.low": "0",
    "memory.high": "9223372036854771712", "memory.wmark_ratio": "0", "memory.oom.group": "0", "memory.priority": "0",
    "memory.use_priority_oom": "0", "memory.wmark_min_adj": "0", "memory.wmark_scale_factor": "50",
    "blkio.throttle.read_bps_device": "", "blkio.throttle.read_iops_device": "", "blkio.throttle.write_bps_device": "",
    "blkio.throttle.write_iops_device": "", "blkio.cost.weight": "",
}  # fmt: skip
V2_FILES = {
    "cpu.weight": "100", "cpu.max": "max 100000", "cpu.max.burst": "0", "cpu.idle": "0", "cpu.bvt_warp_ns": "0",
    "cpuset.cpus": "", "cpuset.cpus.effective": "0-7", "memory.max": "max", "memory.min": "0", "memory.low": "0",
    "memory.high": "max", "memory.wmark_ratio": "0", "memory.oom.group": "0",
}  # fmt: skip


class Clock:
    """A clock that is moved by hand.

    Attributes:
        now_ns: its time.
    """

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Files:
    """A tree of plain files, laid out as the kernel's.

    Attributes:
        tree: for the executor.
    """

    def __init__(self, root: Path, version: int, kube: str = "kubepods") -> None:
        self.tree = CgroupTree(root, version, kube)
        self.make(kube)

    def make(self, folder: str) -> None:
        """Makes a cgroup with every file."""
        for name, text in (V1_FILES if self.tree.version == 1 else V2_FILES).items():
            for path in self._paths(name, folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{text}\n" if text else "")

    def has(self, knob: str, folder: str) -> bool:
        """Reports whether there is such a file: a kernel lacks those that others have added."""
        return self.tree.path(KNOBS[knob], folder).exists()

    def text(self, knob: str, folder: str) -> str:
        """Returns the content of a knob's file."""
        return self.tree.path(KNOBS[knob], folder).read_text().strip("\n")

    def contents(self) -> dict[Path, str]:
        """Returns the content of each file that the agent may write."""
        names = V1_FILES if self.tree.version == 1 else V2_FILES
        files = [path for path in self.tree.root.rglob("*") if path.name in names and self.tree.kube in path.parts]
        return {path: path.read_text() for path in files}

    def put(self, knob: str, folder: str, text: str) -> None:
        """Writes a file as other software would."""
        path = self.tree.path(KNOBS[knob], folder)
        path.write_text(text)
        if knob == "cpuset.cpus" and self.tree.version == 2:
            path.with_name("cpuset.cpus.effective").write_text(text)

    def settle(self) -> None:
        """Brings written sets of CPUs into effect, as a v2 kernel does."""
        if self.tree.version == 2:
            for path in self.tree.root.rglob("cpuset.cpus"):
                if text := path.read_text().strip():
                    path.with_name("cpuset.cpus.effective").write_text(text)

    def executor(self, state_dir: Path | None = None, clock: Clock | None = None) -> Executor:
        """Returns an executor over it."""
        found = OriginalValues(state_dir)
        found.load()
        return Executor(self.tree, clock or Clock(), found)

    def _paths(self, name: str, folder: str) -> Iterator[Path]:
        if self.tree.version == 1:
            yield self.tree.root / KNOBS[name].subsystem / folder / name
        else:
            yield self.tree.root / folder / name


class KernelFiles(Files):
    """A guest's own v2 hierarchy. Each tree begins without pods."""

    def __init__(self, kube: str = "kubepods") -> None:
        for path in sorted(KERNEL.rglob("*"), key=lambda path: -len(path.parts)):
            if path.is_dir():
                path.rmdir()
        super().__init__(KERNEL, 2, kube)

    def make(self, folder: str) -> None:
        """Makes a cgroup, with all controllers that its parents can give it."""
        path = KERNEL
        for name in Path(folder).parts:
            (path / "cgroup.subtree_control").write_text(CONTROLLERS)
            path /= name
            path.mkdir(exist_ok=True)
        for knob, text in (("cpuset.cpus", "\n"), ("cpu.weight", "100"), ("cpu.max", "max 100000")):
            (path / knob).write_text(text)

    def text(self, knob: str, folder: str) -> str:
        """Returns the content of a knob's file; of a quota without its period, which nothing writes."""
        found = super().text(knob, folder)
        return found.removesuffix(" 100000") if knob == "cpu.cfs_quota_us" else found

    def put(self, knob: str, folder: str, text: str) -> None:
        """Writes a file as other software would."""
        self.tree.path(KNOBS[knob], folder).write_text(text)

    def settle(self) -> None:
        """Does nothing: the kernel has done it."""


def tree_of(kind: int | str, root: Path, kube: str = "kubepods") -> Files:
    """Returns a tree of one of KINDS; that of the kernel is not below `root`."""
    return Files(root, kind, kube) if isinstance(kind, int) else KernelFiles(kube)


def kernel_v1() -> str:
    """Returns the reason why the kernel's own v1 cgroups cannot be used here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("cpu", "cpuset", "memory") if not os.access(KERNEL / name, os.W_OK)]
    return f"{KERNEL} has no v1 controller {missing[0]} to write to" if missing else ""


@contextlib.contextmanager
def kernel_tree(folders: tuple[str, ...]) -> Iterator[tuple[CgroupTree, str]]:
    """Makes cgroups in the kernel's own hierarchies, below a folder of this process; removed afterwards.

    Args:
        folders: parents first, below kubepods.
    """
    kube = f"koord-test-{os.getpid()}"
    made: list[Path] = []
    try:
        for name in ("cpu", "cpuset", "memory"):
            for folder in (kube, *(f"{kube}/{folder}" for folder in folders)):
                path = KERNEL / name / folder
                path.mkdir()
                made.append(path)
                if name == "cpuset":  # a v1 set begins empty
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (path / file).write_text((path.parent / file).read_text())
        yield CgroupTree(KERNEL, 1, kube), kube
    finally:
        for path in reversed(made):
            path.rmdir()
