"""NUMA zones, on files laid out as the kernel's and on this machine. A15 of spec/slo-controller.md 1.3."""

import os
import time
from pathlib import Path

import pytest

from services.node_agent.cgroup.kubepods_layout import Hierarchy
from services.node_agent.collectors import numa_counters, open_counter_files
from services.node_agent.collectors.numa_usage import COLLECT_INTERVAL_NS, NumaUsageCollector
from services.node_agent.collectors.open_counter_files import BadFile, OpenFile
from services.node_agent.collectors.usage_sample_types import SECOND_NS, Usage, ZoneUsage

MEMINFO = "Node {n} MemTotal: 1000 kB\nNode {n} MemFree: 100 kB\nNode {n} Active(file): 50 kB\nNode {n} Inactive(file): 30 kB\nNode {n} SReclaimable: 20 kB\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for zone in (0, 1):
        folder = tmp_path / f"sys/devices/system/node/node{zone}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(MEMINFO.format(n=zone))
        (folder / "cpulist").write_text(f"{zone * 2}-{zone * 2 + 1}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "memory/podx").mkdir(parents=True)
    stat(tmp_path, 0, 0)
    (tmp_path / "memory/podx/memory.numa_stat").write_text(
        "total=1 N0=1 N1=0\nfile=1 N0=1 N1=0\nhierarchical_total=30 N0=20 N1=10\n"
    )
    return tmp_path


def stat(folder: Path, first: int, second: int) -> None:
    """The ticks of the CPUs of both zones."""
    lines = [f"cpu{cpu} {ticks} 0 0 77 88 0 0 9 0 0\n" for cpu, ticks in enumerate((first, first, second, second))]
    (folder / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\n" + "".join(lines) + "intr 1 2\n")


def test_a15_zones_share_the_systems_cpu_as_they_share_all(machine: Path) -> None:
    now = [0]
    zones = NumaUsageCollector(
        machine / "proc", machine / "sys", Hierarchy(1, None, machine / "memory"), SECOND_NS // 100, lambda: now[0]
    )
    assert zones.sample(0, Usage(2_000_000, 0), {"x": "podx"}) == {}
    stat(machine, 9_000, 3_000)  # 6 and 2 cores over thirty seconds
    now[0] = COLLECT_INTERVAL_NS
    page = os.sysconf("SC_PAGE_SIZE")
    assert zones.sample(COLLECT_INTERVAL_NS, Usage(2_000_000, 0), {"x": "podx"}) == {
        0: ZoneUsage(Usage(6_000_000, 800 * 1024), Usage(1_500_000, 800 * 1024 - 20 * page)),
        1: ZoneUsage(Usage(2_000_000, 800 * 1024), Usage(500_000, 800 * 1024 - 10 * page)),
    }
    assert zones.sample(COLLECT_INTERVAL_NS + SECOND_NS, Usage(2_000_000, 0), {}) == {}


def test_zone_numbers_with_a_gap_measure_nothing(machine: Path) -> None:
    (machine / "sys/devices/system/node/node1").rename(machine / "sys/devices/system/node/node2")
    zones = NumaUsageCollector(machine / "proc", machine / "sys", Hierarchy(1, None, None), 1, lambda: 5)
    assert zones.sample(COLLECT_INTERVAL_NS, Usage(1, 1), {}) == {}


def test_pages_of_a_v2_cgroup_are_of_four_kib(tmp_path: Path) -> None:
    file = tmp_path / "memory.numa_stat"
    file.write_text("anon N0=8192 N1=4096\nfile N0=4096 N1=0\nkernel_stack N0=999999 N1=0\n")
    assert numa_counters.numa_pages_v2(OpenFile(file)) == {0: 3, 1: 1}


def test_this_machine_has_zones_that_use_no_more_than_they_have() -> None:
    zones = NumaUsageCollector(
        Path("/proc"), Path("/sys"), Hierarchy(1, None, None), SECOND_NS // 100, time.monotonic_ns
    )
    if not Path("/sys/devices/system/node/node0/meminfo").exists():
        pytest.skip("this kernel shows no NUMA zones")
    zones.sample(0, Usage(1_000, 0), {})
    time.sleep(0.05)
    found = zones.sample(COLLECT_INTERVAL_NS, Usage(1_000, 0), {})
    total = numa_counters.zone_total(OpenFile(Path("/sys/devices/system/node/node0/meminfo")))
    assert 0 < (found[0].usage.memory or 0) < total
    assert 0 <= (found[0].usage.cpu or 0) <= (os.cpu_count() or 1) * 2_000_000


IDLE = [
    f"# version: 1.0\n{chr(10).join('scalar 1' for _ in range(4))}\nbuckets\n{chr(10).join('x 0' for _ in range(8))}"
]


def rows(*named: str) -> str:
    """A whole memory.idle_page_stats: 14 lines of heading, 17 rows."""
    others = [f"r{number} 0 0 0 0 0 0 0 0" for number in range(17 - len(named))]
    return "\n".join([*IDLE[0].split("\n"), *named, *others]) + "\n"


def test_e31_pages_idle_for_sixty_periods_are_cold(tmp_path: Path) -> None:
    file = tmp_path / "memory.idle_page_stats"
    file.write_text(rows("cfei 1 2 3 4 5 6 7 8", "slab 9 9 9 9 9 9 9 9"))
    assert open_counter_files.cold_bytes(OpenFile(file)) == 21
    file.write_text("# version: 2\n")
    with pytest.raises(BadFile, match="31 lines"):
        open_counter_files.cold_bytes(OpenFile(file))
