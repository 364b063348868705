"""Counters of waits: on files laid out as the kernel's, and on this machine's own."""

import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors import tc_class_drops
from services.node_agent.collectors.interference_counters import InterferenceCounters, io_stat, sent_bytes, tcp_segments
from services.node_agent.collectors.usage_sample_types import Usage, UsageSnapshot
from services.node_agent.interference.signals import Counters, signals_of
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from tests.support.pods import kept_pod

POD, CONTAINER = "kubepods/podx", "kubepods/podx/c1"
SNAPSHOT = UsageSnapshot(0, None, None, None, {"x": Usage(250_000, 2**20)})


def pod_cgroups() -> PodCgroups:
    return PodCgroups(POD, {"1": CONTAINER}, NodePod(kept_pod(uid="x", phase="Running"), {"c": "1"}, frozenset({"c"})))


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def counters(root: Path, proc: Path, version: int, *, best_effort: bool = False) -> Counters:
    made = InterferenceCounters(root, proc, version, lambda: {"x": (30, 20)}, lambda: {"x": 7})
    return made.read([pod_cgroups()], frozenset({"x"} if best_effort else ()), SNAPSHOT, 5)["x"]


def process(proc: Path, pid: int) -> None:
    put(proc / str(pid), schedstat="100 2000000 40\n")
    put(proc / str(pid) / "net", snmp="Tcp: InSegs OutSegs RetransSegs\nTcp: 1 900 8\n", dev="h |\n  lo: 9 9 9 9 9 9 9 9 9 9\neth0: 1 2 3 4 5 6 7 8 640 9\n")  # fmt: skip


def test_every_counter_is_read_from_a_version_1_node(tmp_path: Path) -> None:
    put(tmp_path / "memory" / POD, memory__stat="workingset_refault_file 9\ntotal_workingset_refault_anon 2\ntotal_workingset_refault_file 40\n")  # fmt: skip
    put(tmp_path / "blkio" / POD, blkio__throttle__io_service_bytes_recursive="8:0 Read 1\n8:0 Total 512\nTotal 512\n")
    put(tmp_path / "cpu" / CONTAINER, tasks="71\n", cgroup__procs="71\n")
    put(tmp_path / "cpuacct" / POD, cpu__pressure="some avg10=12.50 avg60=0 avg300=0 total=1\n")
    process(tmp_path / "proc", 71)
    assert counters(tmp_path, tmp_path / "proc", 1) == Counters(
        5, {71: (2_000_000, 40)}, {"cpuPressure": 12.5}, refaults=42, io_bytes=512, segments=900, retransmitted=8,
        drops=7, sent_bytes=640, cycles=30, instructions=20, cpu_milli=250.0, memory=2**20,
    )  # fmt: skip


def test_a_version_2_node_also_has_direct_reclaim_and_the_latency_of_disks(tmp_path: Path) -> None:
    put(tmp_path, cgroup__controllers="cpu memory io")
    put(tmp_path / POD, memory__stat="workingset_refault_anon 1\nworkingset_refault_file 4\npgscan_direct 6\n", io__pressure="some avg10=1.00 avg60=0 avg300=0 total=1\nfull avg10=0.50 avg60=0 avg300=0 total=1\n", io__stat="8:0 rbytes=10 wbytes=20 rios=1 wios=2 use_delay=0 depth=8 avg_lat=900 win=400\n8:16 rbytes=1 wbytes=0\n")  # fmt: skip
    put(tmp_path / CONTAINER, cgroup__threads="71\n72\n", cgroup__procs="71\n")
    process(tmp_path / "proc", 71)
    found = counters(tmp_path, tmp_path / "proc", 2)
    assert (found.refaults, found.direct_reclaim, found.io_bytes, found.io_latency_us) == (5, 6, 31, 900.0)
    assert (found.pressure, list(found.threads)) == ({"ioPressure": 1.0}, [71])


def test_a_best_effort_pod_is_read_for_its_activity_alone(tmp_path: Path) -> None:
    put(tmp_path / "cpu" / CONTAINER, tasks="71\n", cgroup__procs="71\n")
    process(tmp_path / "proc", 71)
    found = counters(tmp_path, tmp_path / "proc", 1, best_effort=True)
    assert (found.cpu_milli, found.sent_bytes, found.threads, found.cycles) == (250.0, 640, {}, None)


def test_a_pod_without_files_has_no_counters(tmp_path: Path) -> None:
    assert counters(tmp_path, tmp_path, 1) == Counters(5, drops=7, cycles=30, instructions=20, cpu_milli=250.0, memory=2**20)  # fmt: skip


@pytest.mark.parametrize("text", ["", "8:0\n", "8:0 rbytes=x avg_lat=-\n"])
def test_what_the_kernel_does_not_say_is_not_guessed(text: str) -> None:
    assert io_stat(text) == (0, None)
    assert tcp_segments(text) == {}
    assert sent_bytes(text) == {"sent_bytes": 0}


def test_two_threads_on_one_cpu_wait_for_each_other_on_this_kernel(tmp_path: Path) -> None:
    """Run queue waits of real threads, which are pinned to one CPU."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel has no schedstat")
    cpu, children = min(os.sched_getaffinity(0)), []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {cpu})
            ends = time.monotonic() + 0.6
            while time.monotonic() < ends:
                pass
            os._exit(0)
        children.append(child)
    put(tmp_path / "cpu" / CONTAINER, tasks=f"{children[0]}\n", cgroup__procs=f"{children[0]}\n")
    made = InterferenceCounters(tmp_path, Path("/proc"), 1, dict, dict)
    readings = []
    for _ in range(2):
        readings.append(made.read([pod_cgroups()], frozenset(), SNAPSHOT, time.monotonic_ns())["x"])
        time.sleep(0.4)
    for child in children:
        os.waitpid(child, 0)
    latency = signals_of(*readings).get("schedulingLatency")
    assert latency is None or latency > 500
    [(waited, slices)] = readings[1].threads.values()
    assert (waited - readings[0].threads[children[0]][0]) > 100_000_000, slices


def test_segments_of_a_real_network_namespace_count_up(tmp_path: Path) -> None:
    put(tmp_path / "cpu" / CONTAINER, tasks="", cgroup__procs=f"{os.getpid()}\n")
    made = InterferenceCounters(tmp_path, Path("/proc"), 1, dict, dict)
    before = made.read([pod_cgroups()], frozenset(), SNAPSHOT, 0)["x"]
    server = socket.create_server(("127.0.0.1", 0))

    def receive() -> None:
        with server.accept()[0] as accepted:
            accepted.recv(1 << 20)

    thread = threading.Thread(target=receive)
    thread.start()
    with socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x" * 4096)
    thread.join()
    server.close()
    after = made.read([pod_cgroups()], frozenset(), SNAPSHOT, 1)["x"]
    assert before.segments is not None
    assert after.segments is not None
    assert after.segments > before.segments
    assert after.retransmitted is not None


TC = """class htb 1:3 parent 1:1 leaf 8001: prio 2 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b
 Sent 1200 bytes 10 pkt (dropped 12, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
class htb 1:a parent 1:1 prio 3 rate 8Kbit ceil 1Mbit burst 1600b cburst 1600b
 Sent 0 bytes 0 pkt (dropped 3, overlimits 0 requeues 0)
class fq_codel 8001:1 parent 8001:
 (dropped 99, overlimits 0 requeues 0)
"""


def test_packets_dropped_in_a_class_are_read_from_tc() -> None:
    assert tc_class_drops.parse_drops(TC) == {3: 12, 10: 3}
    assert tc_class_drops.parse_drops("") == {}
    assert tc_class_drops.class_drops("lo", ("false",)) == {}
    assert tc_class_drops.class_drops("lo", ("no-such-program",)) == {}
    if shutil.which("tc"):
        assert tc_class_drops.class_drops("lo") == {}
