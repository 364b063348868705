"""Durations of cgroup writes as koordlet's histogram."""

from pathlib import Path

from services.node_agent.cgroup.executor import CgroupTree, CgroupValue, Executor, WriteResult
from services.node_agent.cgroup.original_values import OriginalValues
from services.node_agent.prometheus.durations import BUCKETS_MS, Durations

NAME = "koordlet_resource_update_duration_milliseconds"


def test_observations_are_counted_up_to_each_bound() -> None:
    durations = Durations(NAME, ("type", "status"))
    for duration_ms in (0.01, 0.02, 5.0, 1_000.0):
        durations.observe(duration_ms, "cpu.shares", "success")
    (found,) = durations.histograms()
    assert found.labels == {"type": "cpu.shares", "status": "success"}
    assert found.counts == (1, 2, 2, 2, 2, 3, 3, 3, 4)
    assert found.sum_ms == 1_005.03
    assert [round(bound, 2) for bound in BUCKETS_MS] == [0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84]


def test_writes_and_rejected_values_are_timed_and_others_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "cpu/kubepods"
    folder.mkdir(parents=True)
    (folder / "cpu.shares").write_text("1024\n")
    executor = Executor(CgroupTree(tmp_path, 1, "kubepods"), lambda: 0, OriginalValues(None))
    for value in ("512", "512", "1"):
        executor.update(CgroupValue("cpu.shares", "kubepods", value), cached=False)
    assert executor.update(CgroupValue("cpu.shares", "gone", "512")) is WriteResult.GONE
    found = {each.labels["status"]: each.counts[-1] for each in executor.durations.histograms()}
    assert found == {"success": 1, "failed": 1}
