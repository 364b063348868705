"""Metrics besides usage: on files laid out as the kernel's, and on this machine's own where it has them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.node_agent import feature_gates
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors import perf_events, pressure_stall, resctrl_monitor
from services.node_agent.collectors.interference_gauges import (
    CYCLES_WINDOW_NS,
    THROTTLED_INTERVAL_NS,
    InterferenceGauges,
)
from services.node_agent.collectors.perf_events import CYCLES, TASK_CLOCK, Counters, PerfUnavailable
from services.node_agent.collectors.pressure_stall import Stall
from services.node_agent.collectors.resctrl_monitor import CacheUse
from services.node_agent.kernel.kidled_scan_switch import KidledScan
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from tests.support.pods import kept_pod

POD, CONTAINER = "kubepods/podx", "kubepods/podx/c1"
UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def pod_cgroups() -> PodCgroups:
    pod = kept_pod(uid="x", phase="Running")
    return PodCgroups(POD, {"1": CONTAINER}, NodePod(pod, {"c": "1"}, frozenset({"c"})))


def details(folder: Path, gates: str, now: list[int], version: int = 1, **more: object) -> InterferenceGauges:
    return InterferenceGauges(folder, folder / "sys", version, feature_gates.parse(gates), (0,), lambda: now[0], **more)  # type: ignore[arg-type]


def shown(made: InterferenceGauges) -> dict[tuple[str, ...], float]:
    return {(each.name, *each.labels.values()): each.value for each in made.gauges()}


def test_e30_throttling_is_the_share_of_periods_since_the_last_sample(tmp_path: Path) -> None:
    now, made = [0], None
    for folder in (POD, CONTAINER):
        (tmp_path / "cpu" / folder).mkdir(parents=True, exist_ok=True)
    made = details(tmp_path, "", now)
    for periods, throttled in ((100, 10), (200, 35)):
        for folder in (POD, CONTAINER):
            text = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 5\n"
            (tmp_path / "cpu" / folder / "cpu.stat").write_text(text)
        made.run_cycle([pod_cgroups()])
        now[0] += THROTTLED_INTERVAL_NS
    assert shown(made) == {
        ("koord_node_agent_pod_throttled", "x", "d", "p"): 0.25,
        ("koord_node_agent_container_throttled", "x", "d", "p", "1", "c"): 0.25,
    }


def test_e30_a_kernel_without_full_has_zeros() -> None:
    assert pressure_stall.parse_pressure("some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n") == Stall(
        1.5, 0.0, has_full=False
    )
    with pytest.raises(ValueError, match="some"):
        pressure_stall.parse_pressure("full avg10=1.50\n")


def test_this_kernels_own_pressure_is_read() -> None:
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        pytest.skip("this kernel shows no pressure")
    stall = pressure_stall.parse_pressure(text)
    assert 0 <= stall.full <= stall.some <= 100


def test_pressure_of_pods_and_containers_has_resource_and_degree(tmp_path: Path) -> None:
    folder = tmp_path / POD
    folder.mkdir(parents=True)
    for file in ("cpu.pressure", "memory.pressure"):
        (folder / file).write_text(
            "some avg10=3.00 avg60=2.50 avg300=0.25 total=1\n"
            + ("full avg10=2.00 avg60=1.00 avg300=0 total=1\n" if file == "memory.pressure" else "")
        )
    made = details(tmp_path, "PSICollector=true", [0], 2)
    made.run_cycle([pod_cgroups()])
    assert list(next(made.gauges()).labels) == [
        "pod_uid", "pod_namespace", "pod_name", "psi_resource_type", "psi_precision", "psi_degree",
        "cpu_full_supported",
    ]  # fmt: skip
    labels = ("koordlet_pod_psi", "x", "d", "p")
    values = {"some": (3.0, 2.5, 0.25), "full": (2.0, 1.0, 0.0)}
    assert shown(made) == {
        (*labels, resource, precision, degree, full): value
        for resource, full, degrees in (("cpu", "false", ("some",)), ("mem", "true", ("some", "full")))
        for degree in degrees
        for precision, value in zip(("avg10", "avg60", "avg300"), values[degree], strict=True)
    }


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of version 2 on this machine."""
    root = next((each for each in UNIFIED if (each / "cgroup.controllers").exists()), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("no cgroup of version 2 may be made here")
    folder = root / f"koord-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def test_the_cpu_of_a_real_cgroup_is_counted_by_perf(cgroup: Path) -> None:
    try:
        counters = Counters(cgroup, (TASK_CLOCK, TASK_CLOCK), tuple(os.sched_getaffinity(0)))
    except PerfUnavailable as error:
        pytest.skip(str(error))
    with counters:
        child = os.fork()
        if child == 0:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
            ends = time.process_time() + 0.05
            while time.process_time() < ends:
                pass
            os._exit(0)
        os.waitpid(child, 0)
        first, second = counters.totals()
    assert first > 30_000_000
    assert abs(first - second) < first / 2


def test_cycles_are_counted_for_ten_seconds_of_each_minute_or_not_at_all(
    cgroup: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, each = [0], pod_cgroups()
    here = PodCgroups("none", {"1": cgroup.name}, each.node_pod)
    made = details(cgroup.parent, "CPICollector=true", now, 2, events=(TASK_CLOCK, TASK_CLOCK))
    made.run_cycle([here])
    if "cycles and instructions are not counted" in caplog.text:
        pytest.skip("this kernel counts nothing for cgroups")
    assert shown(made) == {}
    now[0] += CYCLES_WINDOW_NS
    made.run_cycle([here])
    assert {key[-1] for key in shown(made)} == {"cycles", "instructions"}
    made.close()


def test_cycles_are_counted_without_pauses_for_interference_detection(
    cgroup: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, each = [0], pod_cgroups()
    here = PodCgroups("none", {"1": cgroup.name}, each.node_pod)
    made = details(cgroup.parent, "CPICollector=true", now, 2, events=(TASK_CLOCK, TASK_CLOCK))
    made.continuous = True
    made.run_cycle([here])
    if "cycles and instructions are not counted" in caplog.text:
        pytest.skip("this kernel counts nothing for cgroups")
    found = []
    for _ in range(4):
        now[0] += CYCLES_WINDOW_NS
        made.run_cycle([here])
        found.append(made.cycles)
    made.close()
    assert list(found[0]) == ["x"]
    assert found[0] is found[1]
    assert found[2] is not found[0]


def test_a_machine_without_a_pmu_is_tried_once(cgroup: Path, caplog: pytest.LogCaptureFixture) -> None:
    try:
        Counters(cgroup, (CYCLES,), (0,)).close()
    except PerfUnavailable:
        now, here = [0], PodCgroups("none", {"1": cgroup.name}, pod_cgroups().node_pod)
        made = details(cgroup.parent, "CPICollector=true", now, 2)
        for _ in range(3):
            made.run_cycle([here])
            now[0] += 60 * 10**9
        assert caplog.text.count("are not counted") == 1
    else:
        pytest.skip("this machine has a PMU")


def test_an_unknown_processor_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(perf_events, "_CALLS", {})
    with pytest.raises(PerfUnavailable, match="number on"):
        Counters(tmp_path, (CYCLES,), (0,))


def test_cache_and_bandwidth_usage_of_classes_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/resctrl/BE/mon_data/mon_L3_01"
    folder.mkdir(parents=True)
    (folder / "llc_occupancy").write_text("163840\n")
    (folder / "mbm_local_bytes").write_text("Unavailable\n")
    (folder / "mbm_total_bytes").write_text("12\n")
    (folder.parent / "mon_sub_L3_00").mkdir()
    assert resctrl_monitor.cache_usage(tmp_path / "sys/fs/resctrl", ("LS", "BE")) == [
        CacheUse("BE", 1, "llc", 163_840),
        CacheUse("BE", 1, "mbm_total_bytes", 12),
    ]
    made = details(tmp_path, "ResctrlCollector=true", [0])
    made.run_cycle([])
    assert shown(made)["koordlet_resctrl_llc_occupancy", "BE", "1"] == 163_840


def test_the_kernel_scans_for_cold_pages_while_the_agent_runs(tmp_path: Path) -> None:
    cold = KidledScan(tmp_path)
    cold.start()
    assert shown_of(cold) is False  # no kidled
    folder = tmp_path / "kernel/mm/kidled"
    folder.mkdir(parents=True)
    (folder / "scan_period_in_seconds").write_text("0\n")
    (folder / "use_hierarchy").write_text("1\n")
    cold.start()
    assert shown_of(cold) is True
    assert (folder / "scan_period_in_seconds").read_text() == "5"
    cold.stop()
    assert ((folder / "scan_period_in_seconds").read_text(), (folder / "use_hierarchy").read_text()) == ("0", "1\n")


def shown_of(cold: KidledScan) -> bool:
    return cold.started
