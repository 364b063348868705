"""Collection cycles on nodes made of files. Examples E1 and E2, A12 to A14 are the specification's."""

import itertools
import logging
from pathlib import Path
from typing import Literal

import pytest

from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage
from tests.unit.node_agent.collectors.node_on_files import GIB, MIB, NodeOnFiles

POD = "0f1c22aa-5b0e-4c6c-9a53-000000000001"
OTHER = "0f1c22aa-5b0e-4c6c-9a53-000000000002"
LAYOUTS = list(itertools.product((1, 2), ("cgroupfs", "systemd")))


def test_a_nodes_cpu_is_its_ticks_in_the_time_between(tmp_path: Path) -> None:  # E1
    machine = NodeOnFiles(tmp_path)
    machine.node(ticks=10_000, available_kib=40_000_000)
    collector = machine.collector()
    assert machine.after(0, collector).node is None
    machine.node(ticks=10_350, available_kib=40_000_000)
    found = machine.after(1, collector).node
    assert found is not None
    assert found.cpu == 3_500_000


def test_a_nodes_memory_is_total_less_available(tmp_path: Path) -> None:  # E2
    machine = NodeOnFiles(tmp_path)
    collector = machine.collector()
    machine.after(0, collector)
    found = machine.after(1, collector).node
    assert found is not None
    assert found.memory == 26_148_864_000


@pytest.mark.parametrize(("version", "driver"), LAYOUTS)
@pytest.mark.parametrize("parent", ["", "kind.slice/node-1"])
def test_pods_are_found_and_measured_in_every_layout(
    version: Literal[1, 2], driver: Literal["cgroupfs", "systemd"], parent: str, tmp_path: Path
) -> None:
    machine = NodeOnFiles(tmp_path, version=version, driver=driver, parent=parent)
    uids = {qos: f"{POD[:-1]}{number}" for number, qos in enumerate(("", "burstable", "besteffort"))}
    for number, (qos, uid) in enumerate(uids.items(), 1):
        machine.use(uid, qos=qos, cpu_ns=number * SECOND_NS, memory=MIB)
    collector = machine.collector()
    assert machine.after(0, collector).pods == {}  # the first sample primes
    for number, (qos, uid) in enumerate(uids.items(), 1):
        machine.use(uid, qos=qos, cpu_ns=number * SECOND_NS + number * SECOND_NS // 4, memory=number * GIB)
    assert machine.after(2, collector).pods == {
        uid: Usage(number * MICRO // 8, number * GIB) for number, uid in enumerate(uids.values(), 1)
    }
    assert collector.pods == 3


def test_a_slice_below_a_slice_carries_its_parents_name(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path, version=2, parent="kubelet.slice", kubepods=False)
    folder = machine.cgroup / "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
    pod = folder / f"kubelet-kubepods-burstable-pod{POD.replace('-', '_')}.slice"
    pod.mkdir(parents=True)
    (pod / "cpu.stat").write_text("usage_usec 5\n")
    (pod / "memory.stat").write_text("inactive_anon 1\nactive_anon 2\nunevictable 4\n")
    collector = machine.collector()
    machine.after(0, collector)
    assert machine.after(1, collector).pods == {POD: Usage(0, 7)}


@pytest.mark.parametrize("version", [1, 2])
def test_best_effort_is_the_whole_class(version: Literal[1, 2], tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path, version=version)
    collector = machine.collector()
    assert machine.after(0, collector).best_effort is None
    machine.use("", qos="besteffort", cpu_ns=SECOND_NS // 2, memory=3 * GIB)
    assert machine.after(1, collector).best_effort == Usage(500_000, 3 * GIB)


@pytest.mark.parametrize(
    ("node_ticks", "pod_s", "system"),
    [
        (1_000, 8.5, 1_500_000),  # A12: 10 cores, 8.5 in pods and host applications
        (1_000, 10.3, 0),  # A13: measured at different instants, pods may show more than the node
    ],
)
def test_system_is_what_pods_leave_and_never_negative(
    node_ticks: int, pod_s: float, system: int, tmp_path: Path
) -> None:
    machine = NodeOnFiles(tmp_path)
    machine.use(POD, cpu_ns=0, memory=0)
    collector = machine.collector()
    machine.after(0, collector)
    machine.node(ticks=1_000 + node_ticks, available_kib=65_536_000 - 50 * MIB)
    machine.use(POD, cpu_ns=int(pod_s * SECOND_NS), memory=38 * GIB)
    assert machine.after(1, collector).system == Usage(system, 12 * GIB)  # A14


def test_a_pod_on_its_first_sample_counts_as_system(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    collector = machine.collector()
    machine.after(0, collector)
    machine.use(POD, cpu_ns=0, memory=GIB)
    machine.node(ticks=1_100, available_kib=40_000_000)
    found = machine.after(1, collector)
    assert found.pods == {}
    assert found.system == found.node


def test_a_node_without_kubernetes_is_measured_alone_and_pods_when_they_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NodeOnFiles(tmp_path, kubepods=False)
    collector = machine.collector()
    machine.after(0, collector)
    found = machine.after(1, collector)
    assert found.node == found.system
    assert (found.pods, found.best_effort) == ({}, None)
    machine.make_kubepods()
    machine.use(POD, cpu_ns=0, memory=GIB)
    machine.after(1, collector)
    assert POD in machine.after(1, collector).pods
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "there is no cgroup of pods yet; only the node is measured"
    ]


def test_a_pod_whose_file_cannot_be_read_is_skipped_and_comes_back(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    for uid in (POD, OTHER):
        machine.use(uid, cpu_ns=0, memory=GIB)
    collector = machine.collector()
    machine.after(0, collector)
    broken = machine.pod_folders(POD, "")[1][1] / "memory.stat"
    whole = broken.read_text()
    broken.write_text("cache 0\n")
    assert set(machine.after(1, collector).pods) == {OTHER}
    broken.write_text(whole)
    assert set(machine.after(1, collector).pods) == {OTHER}  # primes again
    assert set(machine.after(1, collector).pods) == {POD, OTHER}


def test_pods_come_and_go_and_no_file_stays_open(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    collector = machine.collector()
    machine.after(0, collector)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        uid = f"{POD[:-1]}{number}"
        machine.use(uid, cpu_ns=0, memory=GIB)
        machine.after(1, collector)
        assert set(machine.after(1, collector).pods) == {uid}
        machine.remove(uid)
        assert machine.after(1, collector).pods == {}
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    collector.close()


def test_a_counter_that_is_reset_primes_again(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    machine.use(POD, cpu_ns=50 * SECOND_NS, memory=GIB)
    collector = machine.collector()
    machine.after(0, collector)
    machine.use(POD, cpu_ns=SECOND_NS, memory=GIB)
    assert machine.after(1, collector).pods == {}
    machine.use(POD, cpu_ns=2 * SECOND_NS, memory=GIB)
    assert machine.after(1, collector).pods == {POD: Usage(MICRO, GIB)}


def test_a_last_value_is_valid_for_twenty_intervals(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    machine.use(POD, cpu_ns=0, memory=GIB)
    collector = machine.collector(interval_s=2)
    machine.after(0, collector)
    assert set(machine.after(40, collector).pods) == {POD}
    assert machine.after(40.001, collector).pods == {}
    assert machine.after(2, collector).node is not None


@pytest.mark.parametrize("version", [1, 2])
def test_without_a_memory_controller_pods_have_cpu_alone(
    version: Literal[1, 2], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NodeOnFiles(tmp_path, version=version, controllers=("cpu",))
    machine.use(POD, cpu_ns=0, memory=0)
    collector = machine.collector()
    for _ in range(3):
        found = machine.after(1, collector)
    assert found.pods == {POD: Usage(0, None)}
    assert found.system is not None
    assert (found.system.cpu, found.system.memory) == (0, None)
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "there is no cgroup controller for memory; pods are without it"
    ]


def test_without_a_cpu_controller_pods_have_memory_alone(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path, controllers=("memory",))
    machine.use(POD, cpu_ns=0, memory=GIB)
    collector = machine.collector()
    assert machine.after(0, collector).pods == {}
    found = machine.after(1, collector)
    assert found.pods == {POD: Usage(None, GIB)}
    assert found.system is not None
    assert found.system.cpu is None


def test_without_any_controller_the_node_is_measured(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path, controllers=(), kubepods=False)
    collector = machine.collector()
    machine.after(0, collector)
    found = machine.after(1, collector)
    assert found.node is not None
    assert found.system is None


def test_a_node_whose_memory_cannot_be_read_has_cpu_alone(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    (machine.proc / "meminfo").unlink()
    collector = machine.collector()
    machine.after(0, collector)
    assert machine.after(1, collector).node == Usage(0, None)


def test_the_cgroup_of_all_pods_may_go_and_come_back(tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    machine.use(POD, cpu_ns=0, memory=GIB)
    collector = machine.collector()
    machine.after(0, collector)
    for _, tree in machine.trees():
        (tree / "kubepods").rename(tree / "away")
    found = machine.after(1, collector)
    assert found.node is not None
    assert found.system is None  # pods cannot be distinguished from the rest in this cycle
    assert machine.after(1, collector).system is not None
    for _, tree in machine.trees():
        (tree / "away").rename(tree / "kubepods")
    machine.after(1, collector)
    assert POD in machine.after(1, collector).pods


@pytest.mark.parametrize(
    ("line", "cpu"),
    [
        ("cpu  1 2 3 4 5 6 7\n", 0),  # a kernel without steal and guest
        ("cpu  1 2 3 4 5 6\n", None),
        ("cpus 1 2 3 4 5 6 7 8\n", None),
        ("", None),
    ],
)
def test_a_cpu_line_needs_eight_fields(line: str, cpu: int | None, tmp_path: Path) -> None:
    machine = NodeOnFiles(tmp_path)
    (machine.proc / "stat").write_text(line)
    collector = machine.collector()
    machine.after(0, collector)
    found = machine.after(1, collector).node
    assert (found and found.cpu) == cpu
