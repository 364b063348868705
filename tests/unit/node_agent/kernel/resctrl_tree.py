"""A folder laid out as resctrl's. In the kernel's, a new group has its files at once, and they go with it."""

from collections.abc import Callable
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.resctrl_groups import ResctrlGroups
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from services.node_agent.qos_manager.strategies.resctrl import ANNOTATION
from tests.support.pods import kept_pod

OWN = '{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":35}}}'


def cgroups_of(name: str, text: str = OWN) -> PodCgroups:
    """A pod with the annotation, or without one where the text is empty."""
    pod = kept_pod(name, annotations={ANNOTATION: text} if text else None, phase="Running")
    return PodCgroups(f"kubepods/pod{name}", {}, NodePod(pod, {}, frozenset()))


class ResctrlTree:
    """The files of one machine, and an agent's groups there."""

    def __init__(self, folder: Path) -> None:
        self.now_ns = 0
        self.folder, self.root = folder, folder / "sys/fs/resctrl"
        self.root.mkdir(parents=True, exist_ok=True)
        self.groups = self.agent()

    def supported(self) -> "ResctrlTree":
        """Lays out the files of a processor that shares its caches."""
        (self.root / "info/L3").mkdir(parents=True)
        (self.root / "info/L3/cbm_mask").write_text("7ff\n")
        (self.root / "schemata").write_text("    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
        return self

    def agent(self, proc: Path = Path("/proc")) -> ResctrlGroups:
        return ResctrlGroups(self.folder / "sys", Processes(self.folder / "cgroup", proc), lambda: self.now_ns)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("koordlet-*"))

    def emptied(self, uid: str) -> None:
        """Removes a group's files, as the kernel does when the group is removed."""
        for file in (self.root / f"koordlet-{uid}").iterdir():
            file.unlink()

    def kept(self, seconds: float, change: Callable[[], object]) -> list[str]:
        """Returns the groups after a change and some seconds."""
        change()
        self.now_ns += int(seconds * 10**9)
        change()
        return self.names()
