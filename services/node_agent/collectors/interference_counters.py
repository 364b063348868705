"""Counters of the kernel that show that a pod waits: for a CPU, memory, a disk, or the network.

What each needs:

- scheduling latency: `/proc/<thread>/schedstat`, CONFIG_SCHED_INFO (Linux 2.6.23; most distributions). It is not
  switched off by `kernel.sched_schedstats`.
- pressure: `<cgroup>/{cpu,memory,io}.pressure`: cgroup v2 with PSI (Linux 4.20), or Anolis with v1.
- refaults: `memory.stat`: Linux 3.15; anonymous and file pages apart since 5.9. Direct reclaim: cgroup v2 alone.
- disk bytes: `io.stat` of v2, `blkio.throttle.io_service_bytes` of v1. Latency: v2, and a latency target in
  `io.latency`, by which the kernel has `avg_lat` in `io.stat` (CONFIG_BLK_CGROUP_IOLATENCY, debug statistics on).
- retransmits: `/proc/<pid>/net/snmp`, for pods with a network namespace of their own.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.open_counter_files import CGROUP_BYTES, read_once
from services.node_agent.collectors.pressure_stall import cgroup_pressure
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.interference.signals import Counters
from services.node_agent.kernel.cgroup_processes import Processes

PRESSURE = {"cpu": "cpuPressure", "mem": "memoryPressure", "io": "ioPressure"}
"""Resource of PSI -> signal."""
NET_BYTES = 65_536
MAX_THREADS = 4096
"""Threads of one pod that are read."""


class InterferenceCounters:
    """Reads the counters of pods.

    Attributes:
        cycles: returns uid -> (cycles, instructions) of the last complete window.
        drops: returns uid -> packets dropped in the pod's traffic class.
    """

    def __init__(
        self,
        root: Path,
        proc: Path,
        version: int,
        cycles: Callable[[], Mapping[str, tuple[int, int]]],
        drops: Callable[[], Mapping[str, int]],
    ) -> None:
        self.cycles, self.drops = cycles, drops
        self._root, self._proc, self._v1 = root, proc, version == 1
        self._processes = Processes(root, proc)

    def read(
        self, pods: Iterable[PodCgroups], best_effort: frozenset[str], snapshot: UsageSnapshot, now_ns: int
    ) -> dict[str, Counters]:
        """Returns uid -> reading. Best-effort pods are read for their activity alone."""
        cycles, drops = self.cycles(), self.drops()
        found: dict[str, Counters] = {}
        for each in pods:
            uid = each.pod.metadata.uid
            activity = self._activity(each, snapshot, now_ns)
            found[uid] = activity if uid in best_effort else self._of(each, activity, cycles.get(uid), drops.get(uid))
        return found

    def _activity(self, each: PodCgroups, snapshot: UsageSnapshot, now_ns: int) -> Counters:
        uid = each.pod.metadata.uid
        usage = snapshot.pods.get(uid)
        cpu = usage.cpu / 1000 if usage is not None and usage.cpu is not None else None
        memory = usage.memory if usage is not None else None
        io_bytes, io_latency = self._io(each.folder)
        pids = [pid for folder in each.containers.values() for pid in self._processes.of(folder)[:1]]
        network = {} if each.pod.spec.host_network or not pids else self._network(pids[0])
        found = Counters(now_ns, io_bytes=io_bytes, sent_bytes=network.get("sent_bytes"), cpu_milli=cpu, memory=memory)
        return found._replace(
            io_latency_us=io_latency, segments=network.get("segments"), retransmitted=network.get("retransmitted")
        )

    def _of(self, each: PodCgroups, found: Counters, cycles: tuple[int, int] | None, drops: int | None) -> Counters:
        base = f"{self._root}/cpuacct" if self._v1 else f"{self._root}"
        pressure = cgroup_pressure(f"{base}/{each.folder}")
        refaults, reclaim = self._memory(each.folder)
        return found._replace(
            threads=self._threads(each.containers.values()),
            pressure={PRESSURE[resource]: stall.some for resource, stall in pressure.items()},
            refaults=refaults,
            direct_reclaim=reclaim,
            drops=drops,
            cycles=cycles[0] if cycles is not None else None,
            instructions=cycles[1] if cycles is not None else None,
        )

    def _threads(self, folders: Iterable[str]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for folder in folders:
            for thread in self._processes.of(folder, threads=True)[: MAX_THREADS - len(found)]:
                try:
                    _, waited, slices = read_once(f"{self._proc}/{thread}/schedstat").split()[:3]
                    found[thread] = (int(waited), int(slices))
                except (OSError, ValueError):
                    continue  # it has ended, or the kernel does not count
        return found

    def _memory(self, folder: str) -> tuple[int | None, int | None]:
        """Returns pages that were read back after reclaim, and pages scanned by direct reclaim."""
        base = f"{self._root}/memory" if self._v1 else f"{self._root}"
        try:
            fields = numbers(read_once(f"{base}/{folder}/memory.stat", CGROUP_BYTES).decode())
        except OSError:
            return None, None
        prefix = "total_" if self._v1 else ""
        names = [f"{prefix}workingset_refault{suffix}" for suffix in ("", "_anon", "_file")]
        there = [fields[name] for name in names if name in fields]
        return (sum(there) if there else None), fields.get("pgscan_direct")

    def _io(self, folder: str) -> tuple[int | None, float | None]:
        """Returns bytes read and written over all devices, and the highest mean latency in microseconds."""
        path = "blkio/{}/blkio.throttle.io_service_bytes_recursive" if self._v1 else "{}/io.stat"
        try:
            text = read_once(f"{self._root}/{path.format(folder)}", CGROUP_BYTES).decode()
        except OSError:
            return None, None
        return blkio_bytes(text) if self._v1 else io_stat(text)

    def _network(self, pid: int) -> dict[str, int]:
        try:
            snmp = read_once(f"{self._proc}/{pid}/net/snmp", NET_BYTES).decode()
            devices = read_once(f"{self._proc}/{pid}/net/dev", NET_BYTES).decode()
        except OSError:
            return {}
        return tcp_segments(snmp) | sent_bytes(devices)


def numbers(text: str) -> dict[str, int]:
    """Returns the lines `name number` of a file; others are left out."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found


def blkio_bytes(text: str) -> tuple[int | None, None]:
    """Returns the line `Total` of blkio.throttle.io_service_bytes_recursive; there is no latency in it."""
    return numbers(text).get("Total"), None


def io_stat(text: str) -> tuple[int, float | None]:
    """Returns bytes and latency of an io.stat: lines `MAJ:MIN rbytes=.. wbytes=.. [avg_lat=..]`."""
    total, latencies = 0, []
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split()[1:])
        total += sum(int(fields[name]) for name in ("rbytes", "wbytes") if fields.get(name, "").isdigit())
        if fields.get("avg_lat", "").isdigit():
            latencies.append(int(fields["avg_lat"]))
    return total, float(max(latencies)) if latencies else None


def tcp_segments(text: str) -> dict[str, int]:
    """Returns segments sent and retransmitted of a /proc/<pid>/net/snmp; empty without a line for TCP."""
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2:
        return {}
    fields = dict(zip(*lines, strict=False))
    named: Mapping[str, str] = {"segments": "OutSegs", "retransmitted": "RetransSegs"}
    return {name: int(fields[field]) for name, field in named.items() if fields.get(field, "").isdigit()}


def sent_bytes(text: str) -> dict[str, int]:
    """Returns bytes sent of a /proc/<pid>/net/dev, over all devices but loopback."""
    total = 0
    for line in text.splitlines():
        device, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and device.strip() != "lo" and len(fields) > 8:
            total += int(fields[8])
    return {"sent_bytes": total}
