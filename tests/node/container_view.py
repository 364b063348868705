"""The environment, devices and mounts that the program of a real container sees, from its process in /proc."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from cli.dev.node.kubelet_node import RealNode


class ContainerView(NamedTuple):
    """One running container.

    Attributes:
        environment: variables of its program.
        root: its file system.
        mounts: destination -> the mounted path on the file system of the source.
    """

    environment: dict[str, str]
    root: Path
    mounts: dict[str, str]

    def char_device(self, path: str) -> tuple[int, int, int] | None:
        """Returns major, minor and mode of a character device; None where there is none."""
        try:
            found = Path(f"{self.root}{path}").stat()
        except FileNotFoundError:
            return None
        assert stat.S_ISCHR(found.st_mode), path
        return os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_IMODE(found.st_mode)


def view_of(node: RealNode, uid: str) -> ContainerView:
    """Returns the container of a pod whose program is running."""
    pod = node.tree.of_pod(uid, "pids")
    assert pod, f"pod {uid} has no cgroup"
    for procs in sorted(pod.rglob("cgroup.procs")):
        for pid in procs.read_text().split():
            process = Path("/proc") / pid
            environment = dict(
                text.partition("=")[::2] for text in (process / "environ").read_text().split("\0") if text
            )
            if KEY in environment:
                lines = (line.split() for line in (process / "mountinfo").read_text().splitlines())
                return ContainerView(environment, process / "root", {line[4]: line[3] for line in lines})
    raise AssertionError(f"pod {uid} has no process with the variable {KEY}")


KEY = "POD_DEVICES"
"""Variable of the pod's body that marks the container's own program: the sandbox has no variables of the pod."""
