"""Strategies on the v2 hierarchy of a guest's own kernel, with processes that the kernel limits.

Run in the guest alone, by tests/node/test_guest_cgroups.py, beside the unit tests that have a tree `kernel-v2`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from services.node_agent.cgroup.cgroup_knobs import KNOBS, Support
from services.node_agent.cgroup.executor import CgroupValue, WriteResult
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.interference_counters import InterferenceCounters
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.interference.signals import Counters
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.agents.actions import Burst
from shared.kube.pod import ResourceRequirements
from tests.unit.node_agent.cgroup.cgroup_trees import KERNEL, KERNEL_V2, KernelFiles
from tests.unit.node_agent.qos_manager.managed_node import BATCH, BE, CID, GIB, LS, WEB, ManagedNode, pod

LS_CONTAINER, BE_CONTAINER = f"{LS}/{CID['ls']}", f"{BE}/{CID['be']}"
MIB = 2**20
BURN = "while True: pass"
WAIT = "import time; time.sleep(1e6)"
HOLD = "import sys, time; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096]); time.sleep(1e6)"

IN_LINUX = frozenset(
    {
        "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.idle", "cgroup.procs", "cpuset.cpus",
        "memory.limit_in_bytes", "memory.min", "memory.low", "memory.high", "memory.oom.group",
    }
)  # fmt: skip
"""Knobs that kernels from kernel.org have in v2, by their v1 names."""


@pytest.fixture
def node(tmp_path: Path) -> ManagedNode:
    return ManagedNode(tmp_path, KERNEL_V2, "CgroupReconcile=true,CoreSched=true,PSICollector=true")


@contextmanager
def process_in(folder: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program of Python in a cgroup; it has ended afterwards."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", *argv]) as process:
        try:
            (KERNEL / folder / "cgroup.procs").write_text(str(process.pid))
            yield process
        finally:
            process.kill()


@contextmanager
def burners_in(folder: str, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(process_in(folder, BURN))
        yield


def field(folder: str, file: str, name: str) -> int:
    """Returns a line `name number` of a file."""
    lines = dict(line.split() for line in (KERNEL / folder / file).read_text().splitlines())
    return int(lines[name])


def wait_for(reached: Callable[[], bool], cycle: Callable[[], None] = lambda: None) -> None:
    """Waits as long as it takes: a guest may be emulated. The run as a whole has a time limit."""
    while not reached():
        cycle()
        time.sleep(0.2)


def test_the_kernel_has_the_knobs_of_linux_and_none_of_others() -> None:
    files = KernelFiles()
    executor = files.executor()
    found = {name for name, knob in KNOBS.items() if knob.v2 is not Support.NEVER and files.has(name, files.tree.kube)}
    print(f"kernel {os.uname().release} has {', '.join(sorted(KNOBS[name].file for name in found))}")
    assert found == IN_LINUX
    for name in KNOBS.keys() - found:
        assert not executor.supports(name, files.tree.kube), name
        assert executor.update(CgroupValue(name, files.tree.kube, "1")) is WriteResult.UNSUPPORTED


@pytest.mark.parametrize(
    ("shares", "weight"),
    [("2", "1"), ("102", "4"), ("512", "20"), ("1024", "39"), ("2048", "79"), ("262144", "10000")],
)
def test_e4_shares_become_weights(shares: str, weight: str) -> None:
    files = KernelFiles()
    assert files.executor().update(CgroupValue("cpu.shares", "kubepods", shares)) is WriteResult.WRITTEN
    assert files.text("cpu.shares", "kubepods") == weight


def test_e5_quotas_keep_the_period(node: ManagedNode) -> None:
    executor = node.files.executor()
    for quota, text in (("150000", "150000 100000"), ("1000", "1000 100000"), ("-1", "max 100000")):
        assert executor.update(CgroupValue("cpu.cfs_quota_us", BE, quota)) is WriteResult.WRITTEN
        assert (KERNEL / BE / "cpu.max").read_text().strip() == text
        assert executor.read("cpu.cfs_quota_us", BE) == quota


def test_e19_memory_qos_is_held_in_whole_pages_and_written_once(node: ManagedNode) -> None:
    config = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80, "throttlingPercent": 90, "oomKillGroup": 1}
    config |= {"wmarkRatio": 95, "priority": 3, "priorityEnable": 1}
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": config}})
    node.run_cycle(node=1, ls=0.5, be=0.3)
    held = {knob: node.files.text(knob, LS_CONTAINER) for knob in ("memory.min", "memory.low", "memory.oom.group")}
    assert held == {"memory.min": str(GIB // 2), "memory.low": str(858_993_459 // 4096 * 4096), "memory.oom.group": "1"}
    assert int(node.files.text("memory.high", LS_CONTAINER)) > GIB
    executor = node.qos_manager.executor
    assert executor is not None
    assert executor.refused == 0
    written = executor.written
    for _ in range(130):  # beyond the time after which files are read again
        node.run_cycle(node=1, ls=0.5, be=0.3)
    assert executor.written == written
    node.qos_manager.release()
    assert {node.files.text(knob, LS_CONTAINER) for knob in ("memory.min", "memory.low")} == {"0"}
    assert node.files.text("memory.high", LS_CONTAINER) == "max"


def test_cpu_idle_of_best_effort_and_back(node: ManagedNode) -> None:
    best_effort = {"cpuQOS": {"enable": True, "schedIdle": 1}}
    node.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "coreSched"}, "beClass": best_effort})
    node.run_cycle(node=1, ls=0.5, be=0.3)
    assert node.files.text("cpu.idle", "kubepods/besteffort") == "1"
    assert node.files.text("cpu.shares", BE) == "79", "pods below it keep their weights"
    node.qos_manager.release()
    assert node.files.text("cpu.idle", "kubepods/besteffort") == "0"


def test_a_suppressed_process_runs_on_the_cpus_that_are_left(node: ManagedNode) -> None:
    node.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65})
    with process_in(BE_CONTAINER, WAIT) as process:
        node.run_cycle(node=4.0, ls=2.5, be=1.0)
        assert os.sched_getaffinity(process.pid) == {0, 1, 4}
        node.slo(resourceUsedThresholdWithBE={"enable": False})
        node.run_cycle(node=4.0, ls=2.5, be=1.0)
        assert os.sched_getaffinity(process.pid) == set(range(8))


def test_a_throttled_container_gets_a_larger_quota_and_a_buffer_within_it(node: ManagedNode) -> None:
    node.pods(BATCH, pod("ls", "LS", "Burstable", ResourceRequirements(requests={"cpu": "50m"}, limits={"cpu": "50m"})))
    node.slo(cpuBurstStrategy={"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300})
    for folder in (LS, LS_CONTAINER):
        node.files.put("cpu.cfs_quota_us", folder, "5000")
    with process_in(LS_CONTAINER, BURN):
        wait_for(
            lambda: int(node.files.text("cpu.cfs_quota_us", LS_CONTAINER)) > 6_000,
            lambda: node.run_cycle(node=2.2, ls=2.0, be=0.1),
        )
    assert field(LS_CONTAINER, "cpu.stat", "nr_throttled") > 0
    assert node.files.text("cpu.cfs_quota_us", LS) == node.files.text("cpu.cfs_quota_us", LS_CONTAINER)
    assert node.files.text("cpu.cfs_burst_us", LS_CONTAINER) == "5000", "this kernel takes no more than the quota"
    assert any(isinstance(action, Burst) for action in node.actions)
    node.slo(cpuBurstStrategy={"policy": "none"})
    node.run_cycle(node=2.2, ls=2.0, be=0.1)
    assert node.files.text("cpu.cfs_quota_us", LS_CONTAINER) == "5000"
    assert node.files.text("cpu.cfs_burst_us", LS_CONTAINER) == "0"


def test_a_process_that_waits_shows_in_pressure_and_scheduling_latency(node: ManagedNode) -> None:
    node.files.put("cpu.cfs_quota_us", LS_CONTAINER, "5000")
    counters = InterferenceCounters(KERNEL, Path("/proc"), 2, dict, dict)
    web = PodCgroups(LS, {CID["ls"]: LS_CONTAINER}, NodePod(WEB, {"c": CID["ls"]}, frozenset({"c"})))

    def pressure_gauges() -> dict[str, float]:
        found = [
            each for each in node.qos_manager.gauges() if "psi" in each.name and each.labels.get("pod_name") == "ls"
        ]
        return {"/".join((each.name, *each.labels.values())): each.value for each in found if each.value > 0}

    def read() -> Counters:
        return counters.read([web], frozenset(), UsageSnapshot(0, None, None, None, {}), 1)["ls"]

    with burners_in(LS_CONTAINER, 2):
        wait_for(lambda: read().pressure["cpuPressure"] > 5)
        assert sum(waited for waited, _ in read().threads.values()) > 0
        wait_for(lambda: bool(pressure_gauges()), lambda: node.run_cycle(node=1, ls=0.5, be=0.1))
    found = read()
    assert found.direct_reclaim is not None
    assert found.refaults is not None
    assert found.io_bytes is not None
    print(f"cpu pressure {found.pressure['cpuPressure']}; gauges {sorted(pressure_gauges())}")


def test_usage_of_node_and_pods_is_measured(node: ManagedNode) -> None:
    collector = Collector(Path("/proc"), KERNEL, "", interval_s=1.0, clock_ns=time.monotonic_ns)
    try:
        with process_in(BE_CONTAINER, HOLD, str(64 * MIB)), burners_in(LS_CONTAINER, 1):
            wait_for(lambda: field(BE_CONTAINER, "memory.stat", "anon") >= 64 * MIB)
            collector.collect()
            time.sleep(2)
            found = collector.collect()
    finally:
        collector.close()
    assert found.node is not None
    assert found.node.cpu
    assert found.node.memory
    assert found.pods["be"].memory is not None
    assert 64 * MIB <= found.pods["be"].memory < 128 * MIB
    busy, idle = found.pods["ls"].cpu, found.pods["be"].cpu
    assert busy is not None
    assert idle is not None
    assert busy > idle


def test_a_memory_limit_of_batch_resources_ends_a_process_that_exceeds_it(node: ManagedNode) -> None:
    executor = node.files.executor()
    limits = [[CgroupValue("memory.limit_in_bytes", folder, str(64 * MIB))] for folder in (BE, BE_CONTAINER)]
    assert executor.update_levels(limits) == {WriteResult.WRITTEN: 2}
    with process_in(BE_CONTAINER, f"import time; time.sleep(1)\n{HOLD}", str(256 * MIB)) as process:
        assert process.wait() == -9
    assert field(BE_CONTAINER, "memory.events", "oom_kill") == 1


def test_memory_above_throttling_is_reclaimed(node: ManagedNode) -> None:
    assert node.files.executor().update(CgroupValue("memory.high", BE_CONTAINER, str(16 * MIB))) is WriteResult.WRITTEN
    with process_in(BE_CONTAINER, f"import time; time.sleep(1)\n{HOLD}", str(48 * MIB)):
        wait_for(lambda: field(BE_CONTAINER, "memory.events", "high") > 0)
