"""Host applications: paths of their cgroups, and their usage apart from the system's."""

from pathlib import Path
from typing import Literal

import pytest

from services.node_agent.cgroup import host_application_paths
from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage
from shared.kube.slo_config import CgroupPath, HostApplication
from tests.unit.node_agent.collectors.node_on_files import GIB, MIB, NodeOnFiles

KUBE = ("kubepods", "kubepods/burstable", "kubepods/besteffort")
NGINX = HostApplication(name="nginx", priority="koord-prod", qos="LS")


@pytest.mark.parametrize(
    ("app", "folder"),
    [
        (NGINX, "host-latency-sensitive/nginx"),
        (HostApplication(name="spark", qos="BE"), "host-best-effort/spark"),
        (HostApplication(name="sshd"), "sshd"),
        (
            HostApplication(
                name="a", cgroup_path=CgroupPath(base="CgroupRoot", parent_dir="/my/", relative_path="app")
            ),
            "my/app",
        ),
        (
            HostApplication(name="a", cgroup_path=CgroupPath(base="KubepodsBesteffort", relative_path="offline/")),
            "kubepods/besteffort/offline",
        ),
        (HostApplication(name="a", cgroup_path=CgroupPath(base="Kubepods")), "kubepods"),
        (HostApplication(name="a", cgroup_path=CgroupPath(base="CgroupRoot")), None),
        (HostApplication(name="a", cgroup_path=CgroupPath(base="CgroupRoot", parent_dir="../other")), None),
    ],
)
def test_its_cgroup_follows_from_its_class_or_its_path(app: HostApplication, folder: str | None) -> None:
    assert host_application_paths.cgroup_of(app, KUBE) == folder


def test_a_path_below_kubepods_is_none_while_there_are_no_pods() -> None:
    app = HostApplication(name="a", cgroup_path=CgroupPath(base="Kubepods", relative_path="x"))
    assert host_application_paths.cgroup_of(app, None) is None


def use(machine: NodeOnFiles, version: int, *, cpu_ns: int, memory: int) -> None:
    """Sets the usage of nginx."""
    for controller in ("cpuacct", "memory") if version == 1 else ("",):
        folder = machine.cgroup / controller / "host-latency-sensitive/nginx"
        folder.mkdir(parents=True, exist_ok=True)
        prefix = "total_" if version == 1 else ""
        names = {
            "inactive_anon": memory,
            "active_anon": 0,
            "unevictable": 0,
            "inactive_file": 5 * MIB,
            "active_file": MIB,
        }
        (folder / "memory.stat").write_text("".join(f"{prefix}{name} {size}\n" for name, size in names.items()))
        (folder / "cpuacct.usage").write_text(f"{cpu_ns}\n")
        (folder / "cpu.stat").write_text(f"usage_usec {cpu_ns // 1000}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_usage_of_an_application_is_measured_apart_from_the_systems(
    version: Literal[1, 2], tmp_path: Path
) -> None:  # A12
    machine = NodeOnFiles(tmp_path, version=version, parent="kind")
    collector = machine.collector()
    use(machine, version, cpu_ns=0, memory=GIB)
    machine.node(ticks=1_000, available_kib=40_000_000)
    collector.collect((NGINX,))
    machine.node(ticks=1_250, available_kib=40_000_000)  # 2.5 cores
    use(machine, version, cpu_ns=SECOND_NS, memory=GIB)
    machine.now_ns += SECOND_NS
    found = collector.collect((NGINX,))
    assert found.applications == {"nginx": Usage(MICRO, GIB)}
    assert found.system is not None
    assert found.node is not None
    assert found.system.cpu == 1_500_000
    assert found.system.memory == (found.node.memory or 0) - GIB
    machine.now_ns += SECOND_NS
    assert collector.collect(()).applications == {}  # the NodeSLO names it no longer


def test_one_that_does_not_run_has_no_sample(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    collector = machine.collector()
    for _ in range(2):
        machine.now_ns += SECOND_NS
        assert collector.collect((NGINX,)).applications == {}


@pytest.mark.parametrize("version", [1, 2])
def test_page_cache_counts_under_the_nodemetrics_policy(version: Literal[1, 2], tmp_path: Path) -> None:  # E2
    machine = NodeOnFiles(tmp_path, version=version)
    (machine.proc / "meminfo").write_text("MemTotal: 65536000 kB\nMemFree: 10000000 kB\nMemAvailable: 40000000 kB\n")
    use(machine, version, cpu_ns=0, memory=GIB)
    collector = machine.collector()
    for _ in range(2):
        machine.now_ns += SECOND_NS
        found = collector.collect((NGINX,), "usageWithPageCache")
    assert found.node is not None
    assert (found.node.memory, found.node.reported) == (26_148_864_000, 56_868_864_000)
    assert found.applications["nginx"].reported == GIB + 6 * MIB
    assert found.system is not None
    assert found.system.counted is None  # the system's memory is without page cache under every policy
    machine.now_ns += SECOND_NS
    assert collector.collect((NGINX,)).node is None  # another policy primes again
