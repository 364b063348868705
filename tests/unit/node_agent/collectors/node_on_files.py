"""A node made of files: /proc and cgroups laid out as kernels and kubelets do, with a clock that is moved by hand."""

from pathlib import Path
from typing import Literal

from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_sample_types import SECOND_NS, UsageSnapshot

MIB = 2**20
GIB = 2**30
TICK_HZ = 100

STAT = "cpu  {user} {nice} {system} 900000 5000 {irq} {softirq} 70 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1 2 3\n"
MEMINFO = "MemTotal:       {total} kB\nMemFree:        1000 kB\nMemAvailable:   {available} kB\nBuffers: 1 kB\n"
MEMORY_V1 = """\
cache 4096
inactive_anon 1
active_anon 1
unevictable 1
hierarchical_memory_limit 9223372036854771712
total_cache 8192
total_inactive_anon {inactive}
total_active_anon {active}
total_inactive_file 7777
total_unevictable {unevictable}
"""
MEMORY_V2 = """\
anon 99
file 77
kernel 55
inactive_anon {inactive}
active_anon {active}
inactive_file 7777
unevictable {unevictable}
slab 1
"""
CPU_V2 = "usage_usec {usec}\nuser_usec 1\nsystem_usec 2\nnr_periods 0\nnr_throttled 0\n"

QOS = ("", "burstable", "besteffort")


class NodeOnFiles:
    """Files below a folder, and a collector that reads them.

    Attributes:
        now_ns: the clock.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: Literal[1, 2] = 1,
        driver: Literal["cgroupfs", "systemd"] = "cgroupfs",
        parent: str = "",
        controllers: tuple[str, ...] = ("cpu", "memory"),
        kubepods: bool = True,
    ) -> None:
        self.now_ns = 1_000 * SECOND_NS
        self.proc = folder / "proc"
        self.cgroup = folder / "cgroup"
        self._parent = parent
        self._version = version
        self._driver = driver
        self._controllers = controllers
        self.proc.mkdir(parents=True)
        self.cgroup.mkdir()
        if version == 2:
            (self.cgroup / "cgroup.controllers").write_text(" ".join(("cpuset", *controllers, "pids")) + "\n")
        for _, tree in self.trees():
            tree.mkdir(parents=True, exist_ok=True)
        self.node(ticks=1_000, available_kib=40_000_000)
        if kubepods:
            self.make_kubepods()

    def trees(self) -> list[tuple[str, Path]]:
        """Yields (controller, its folder) of those that the node has."""
        if self._version == 2:
            return [(name, self.cgroup / self._parent) for name in ("cpu", *self._controllers[1:])]
        names = {"cpu": "cpuacct", "memory": "memory"}
        return [(name, self.cgroup / names[name] / self._parent) for name in self._controllers]

    def make_kubepods(self) -> None:
        for _, tree in self.trees():
            for qos in QOS:
                (tree / self._folder(qos)).mkdir(parents=True, exist_ok=True)
        self.use("", qos="besteffort", cpu_ns=0, memory=0)

    def collector(self, *, interval_s: float = 1.0) -> Collector:
        return Collector(
            self.proc, self.cgroup, self._parent, interval_s=interval_s, clock_ns=lambda: self.now_ns, tick_hz=TICK_HZ
        )

    def node(self, *, ticks: int, available_kib: int, total_kib: int = 65_536_000) -> None:
        """Sets the node's counters; ticks are spread over all that count, and guest and steal get some too."""
        parts = {"user": ticks // 2, "nice": ticks // 10, "system": ticks // 5, "irq": ticks // 10}
        parts["softirq"] = ticks - sum(parts.values())
        (self.proc / "stat").write_text(STAT.format(**parts))
        (self.proc / "meminfo").write_text(MEMINFO.format(total=total_kib, available=available_kib))

    def pod_folders(self, uid: str, qos: str) -> list[tuple[str, Path]]:
        """Yields (controller, folder) of a pod, or of the QoS class when the uid is empty."""
        inner = self._folder(qos)
        if uid and self._driver == "systemd":
            inner /= "-".join(filter(None, ("kubepods", qos, f"pod{uid.replace('-', '_')}.slice")))
        elif uid:
            inner /= f"pod{uid}"
        return [(name, tree / inner) for name, tree in self.trees()]

    def use(self, uid: str, *, qos: str = "", cpu_ns: int, memory: int) -> None:
        """Sets a pod's counters; makes it when absent."""
        for name, folder in self.pod_folders(uid, qos):
            folder.mkdir(parents=True, exist_ok=True)
            if name == "memory":
                text = MEMORY_V1 if self._version == 1 else MEMORY_V2
                parts = {"inactive": memory // 2, "active": memory - memory // 2, "unevictable": 0}
                (folder / "memory.stat").write_text(text.format(**parts))
            elif self._version == 1:
                (folder / "cpuacct.usage").write_text(f"{cpu_ns}\n")
            else:
                (folder / "cpu.stat").write_text(CPU_V2.format(usec=cpu_ns // 1_000))

    def remove(self, uid: str, *, qos: str = "") -> None:
        for _, folder in self.pod_folders(uid, qos):
            if folder.exists():
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()

    def after(self, seconds: float, collector: Collector) -> UsageSnapshot:
        """Lets time pass, then collects."""
        self.now_ns += int(seconds * SECOND_NS)
        return collector.collect()

    def _folder(self, qos: str) -> Path:
        if self._driver == "cgroupfs":
            return Path("kubepods", qos)
        top = Path("kubepods.slice")
        return top / f"kubepods-{qos}.slice" if qos else top
