"""Cgroup paths of pods: version 1 or 2, with the kubelet's cgroup driver cgroupfs or systemd. Names only.

Nothing is measured.

Source: spec/node-agent.md 0.1 and 2.1. The uid in a name is the pod's `metadata.uid`, or of a static pod the hash of
its file.
"""

import os
from pathlib import Path
from typing import NamedTuple

SLICE = ".slice"


class Hierarchy(NamedTuple):
    """The cgroup file systems of a node.

    Attributes:
        version: 1 or 2.
        cpu, memory: the folder above kubepods for these controllers (the same in v2); None when the kernel has no such
            controller.
    """

    version: int
    cpu: Path | None
    memory: Path | None

    @property
    def listed(self) -> Path | None:
        """The folder in which pods are listed; every controller has the same pods."""
        return self.cpu or self.memory


class KubepodsLayout(NamedTuple):
    """The three folders that hold pods, relative to a controller's.

    Attributes:
        folders: (folder, prefix of a pod's name, suffix of it): Guaranteed, Burstable, BestEffort.
        best_effort: the BestEffort folder.
        driver: systemd or cgroupfs.
    """

    folders: tuple[tuple[str, str, str], ...]
    best_effort: str
    driver: str


def hierarchy(root: Path, parent: str) -> Hierarchy:
    """Returns the hierarchies mounted below `root`. A v1 node may also mount a v2 tree, which has no controller."""
    below = parent.strip("/")
    if (root / "cgroup.controllers").exists():
        here = root / below
        return Hierarchy(2, here, here if "memory" in (root / "cgroup.controllers").read_text().split() else None)
    cpu, memory = root / "cpuacct", root / "memory"
    return Hierarchy(1, cpu / below if cpu.is_dir() else None, memory / below if memory.is_dir() else None)


def kubepods_layout(listed: Path) -> KubepodsLayout | None:
    """Returns the layout of pods; None while there are none. The systemd driver's layout is tried first."""
    stem = f"{listed.name.removesuffix(SLICE)}-" if listed.name.endswith(SLICE) else ""
    kube = f"{stem}kubepods"
    if (listed / f"{kube}{SLICE}").is_dir():
        top = f"{kube}{SLICE}"
        burstable, best_effort = (f"{top}/{kube}-{qos}{SLICE}" for qos in ("burstable", "besteffort"))
        folders = (
            (top, f"{kube}-pod", SLICE),
            (burstable, f"{kube}-burstable-pod", SLICE),
            (best_effort, f"{kube}-besteffort-pod", SLICE),
        )
        return KubepodsLayout(folders, best_effort, "systemd")
    if (listed / "kubepods").is_dir():
        names = ("kubepods", "kubepods/burstable", "kubepods/besteffort")
        return KubepodsLayout(tuple((name, "pod", "") for name in names), names[2], "cgroupfs")
    return None


def pod_folders(listed: Path, kube: KubepodsLayout) -> dict[str, str]:
    """Returns uid -> folder of each pod, relative to a controller's.

    Raises:
        OSError: there is no kubepods folder any more.
    """
    found: dict[str, str] = {}
    for number, (folder, begin, end) in enumerate(kube.folders):
        try:
            names = os.listdir(listed / folder)  # noqa: PTH208  half the cost of iterdir, each second
        except OSError:
            if number == 0:
                raise
            continue  # the kubelet creates the other two when it needs them
        for name in names:
            if name.startswith(begin) and name.endswith(end):
                uid = name[len(begin) : len(name) - len(end)]
                if uid:
                    found[uid.replace("_", "-") if end else uid] = f"{folder}/{name}"
    return found
