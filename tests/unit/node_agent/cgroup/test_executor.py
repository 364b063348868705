"""Writes to cgroups: on plain files in the layout of both versions, and on the kernel's own v1 files where possible."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.node_agent.cgroup.cgroup_knobs import KNOBS
from services.node_agent.cgroup.executor import FORCE_AFTER_S, CgroupTree, CgroupValue, Executor, WriteResult
from services.node_agent.cgroup.original_values import OriginalValues
from tests.unit.node_agent.cgroup.cgroup_trees import KINDS, Clock, Files, kernel_tree, kernel_v1, tree_of

POD = "kubepods/besteffort/pod1"
CONTAINER = f"{POD}/c1"


def _tree(kind: int | str, root: Path) -> Files:
    files = tree_of(kind, root)
    for folder in ("kubepods/besteffort", POD, CONTAINER):
        files.make(folder)
    return files


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return _tree(request.param, tmp_path / "cgroup")


@pytest.mark.parametrize(
    ("knob", "value", "v1", "v2"),
    [
        ("cpu.shares", "512", "512", "20"),
        ("cpu.cfs_quota_us", "150000", "150000", "150000"),
        ("cpu.cfs_burst_us", "250000", "250000", "250000"),
        ("cpu.bvt_warp_ns", "-1", "-1", "-1"),
        ("cpu.idle", "1", "1", "1"),
        ("cpuset.cpus", "0-3,6", "0-3,6", "0-3,6"),
        ("memory.limit_in_bytes", "1073741824", "1073741824", "1073741824"),
        ("memory.min", "4096", "4096", "4096"),
        ("memory.wmark_ratio", "95", "95", "95"),
        ("memory.oom.group", "1", "1", "1"),
    ],
)
def test_each_knob_is_written_in_terms_of_its_version(files: Files, knob: str, value: str, v1: str, v2: str) -> None:
    executor = files.executor()
    if not files.has(knob, POD):  # a file that only some kernels have
        assert executor.update(CgroupValue(knob, POD, value)) is WriteResult.UNSUPPORTED
        return
    assert executor.update(CgroupValue(knob, POD, value)) is WriteResult.WRITTEN
    assert files.text(knob, POD) == (v1 if files.tree.version == 1 else v2)


def test_no_limit_is_max_in_v2(files: Files) -> None:
    files.put("cpu.cfs_quota_us", POD, "100000" if files.tree.version == 1 else "100000 100000")
    assert files.executor().update(CgroupValue("cpu.cfs_quota_us", POD, "-1")) is WriteResult.WRITTEN
    assert files.text("cpu.cfs_quota_us", POD) == ("-1" if files.tree.version == 1 else "max")


def test_values_in_place_are_not_written(files: Files) -> None:
    executor = files.executor()
    same = (("cpu.cfs_quota_us", "-1"), ("memory.limit_in_bytes", "-1"), ("memory.high", str(2**63 - 1)))
    for knob, value in (*same, ("memory.min", "0"), ("cpuset.cpus", "0,1-7")):
        assert executor.update(CgroupValue(knob, POD, value)) is WriteResult.SAME, knob
    assert executor.written == 0


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_quota_with_its_period_equals_the_bare_number(tmp_path: Path, kind: int | str) -> None:
    files = tree_of(kind, tmp_path)
    files.put("cpu.cfs_quota_us", "kubepods", "150000 100000")
    assert files.executor().update(CgroupValue("cpu.cfs_quota_us", "kubepods", "150000")) is WriteResult.SAME


def test_a_value_is_read_again_only_after_a_while(files: Files) -> None:
    clock = Clock()
    executor = files.executor(clock=clock)
    executor.update(CgroupValue("cpu.shares", POD, "512"))
    files.put("cpu.shares", POD, "2")
    assert executor.update(CgroupValue("cpu.shares", POD, "512")) is WriteResult.SAME
    assert files.text("cpu.shares", POD) == "2"
    clock.now_ns = int((FORCE_AFTER_S + 1) * 1e9)
    assert executor.update(CgroupValue("cpu.shares", POD, "512")) is WriteResult.WRITTEN


def test_an_invalid_value_is_rejected_and_nothing_is_written(files: Files) -> None:
    executor = files.executor()
    wrong = (
        ("cpu.shares", "1"), ("cpu.bvt_warp_ns", "3"), ("cpuset.cpus", ""), ("cpuset.cpus", "a-b"), ("memory.min", "-1"),
        ("memory.wmark_ratio", "101"),
    )  # fmt: skip
    found = [one for one in wrong if files.has(one[0], POD)]
    for knob, value in found:
        before = files.text(knob, POD)
        assert executor.update(CgroupValue(knob, POD, value)) is WriteResult.REFUSED, (knob, value)
        assert files.text(knob, POD) == before
    assert executor.refused == len(found)


@pytest.mark.parametrize("version", [1, 2])
def test_a_kernel_without_a_file_is_no_error(tmp_path: Path, version: int) -> None:
    files = _tree(version, tmp_path)
    for folder in ("kubepods", POD):
        files.tree.path(KNOBS["cpu.idle"], folder).unlink()
    assert files.executor().update(CgroupValue("cpu.idle", POD, "1")) is WriteResult.UNSUPPORTED
    assert not files.tree.path(KNOBS["cpu.idle"], POD).exists()


def test_a_cgroup_that_is_gone_is_no_error(files: Files) -> None:
    gone = files.executor().update(CgroupValue("cpu.shares", "kubepods/besteffort/pod9", "512"))
    assert gone is WriteResult.GONE
    assert not files.tree.path(KNOBS["cpu.shares"], "kubepods/besteffort/pod9").exists()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_v2_has_no_blkio_files(tmp_path: Path, kind: int | str) -> None:
    executor = tree_of(kind, tmp_path).executor()
    assert (
        executor.update(CgroupValue("blkio.throttle.read_bps_device", "kubepods", "8:0 1")) is WriteResult.UNSUPPORTED
    )


def test_a_device_is_written_once_and_removed_only_if_present(tmp_path: Path) -> None:
    files = Files(tmp_path, 1)
    executor, knob = files.executor(), "blkio.throttle.read_bps_device"
    assert executor.update(CgroupValue(knob, "kubepods", "8:0 0"), cached=False) is WriteResult.SAME
    assert executor.update(CgroupValue(knob, "kubepods", "8:0 1024"), cached=False) is WriteResult.WRITTEN
    files.put(knob, "kubepods", "8:0 1024\n8:16 5\n")
    assert executor.update(CgroupValue(knob, "kubepods", "8:0 1024"), cached=False) is WriteResult.SAME
    assert executor.update(CgroupValue(knob, "kubepods", "8:16 0"), cached=False) is WriteResult.WRITTEN


class RecordingExecutor(Executor):
    """An executor that records the order of its writes."""

    def __init__(self, tree: CgroupTree) -> None:
        super().__init__(tree, Clock(), OriginalValues())
        self.order: list[tuple[str, str]] = []

    def _write(self, desired: CgroupValue) -> WriteResult:
        done = super()._write(desired)
        if done is WriteResult.WRITTEN:
            self.order.append((desired.folder.rpartition("/")[2], desired.value))
        return done


def levels(knob: str, *values: str) -> list[list[CgroupValue]]:
    folders = ("kubepods/besteffort", POD, CONTAINER)
    return [[CgroupValue(knob, folder, value)] for folder, value in zip(folders, values, strict=True)]


def test_e28_shrinking_values_are_written_child_first_and_growing_ones_parent_first(files: Files) -> None:
    forty, fifty, hundred, two, three = (str(count * 4096) for count in (40, 50, 100, 200, 300))  # whole pages
    executor = RecordingExecutor(files.tree)
    executor.update_levels(levels("memory.min", hundred, hundred, hundred))
    executor.order.clear()
    executor.update_levels(levels("memory.min", fifty, forty, forty))
    assert executor.order == [("c1", forty), ("pod1", forty), ("besteffort", fifty)]
    executor.order.clear()
    executor.update_levels(levels("memory.min", three, two, two))
    assert executor.order == [("besteffort", three), ("pod1", two), ("c1", two)]


def test_cpus_are_widened_from_above_and_then_narrowed_from_below(files: Files) -> None:
    for folder in ("kubepods/besteffort", POD, CONTAINER):
        files.put("cpuset.cpus", folder, "0-1")
    executor = RecordingExecutor(files.tree)
    executor.update_levels(levels("cpuset.cpus", "1-2", "1-2", "1-2"))
    assert executor.order[:3] == [("besteffort", "0-2"), ("pod1", "0-2"), ("c1", "0-2")]
    assert executor.order[3:] == [("c1", "1-2"), ("pod1", "1-2"), ("besteffort", "1-2")]
    assert files.text("cpuset.cpus", CONTAINER) == "1-2"


def test_one_bad_value_hinders_no_other(files: Files) -> None:
    desired = [[CgroupValue("memory.min", POD, "-5"), CgroupValue("memory.low", POD, "4096")]]
    counts = files.executor().update_levels(desired)
    assert counts == {WriteResult.REFUSED: 1, WriteResult.WRITTEN: 1}


def test_original_values_are_restored(files: Files) -> None:
    executor = files.executor()
    before = {
        (knob, folder): files.text(knob, folder)
        for knob in ("cpu.shares", "cpu.cfs_quota_us", "memory.high", "memory.limit_in_bytes", "cpu.bvt_warp_ns")
        for folder in (POD, CONTAINER)
        if files.has(knob, folder)
    }
    values = {"cpu.shares": "77", "cpu.cfs_quota_us": "50000", "memory.high": "4096", "memory.limit_in_bytes": "8192"}
    for knob, folder in before:
        executor.update(CgroupValue(knob, folder, values.get(knob, "2")))
        executor.update(CgroupValue(knob, folder, "2" if knob != "cpu.cfs_quota_us" else "2000"))
    executor.restore()
    for (knob, folder), text in before.items():
        now = files.text(knob, folder)
        same = {"-1", "max", "max 100000", "9223372036854771712"}
        assert now == text or {now, text} <= same, (knob, folder)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_cpuset_of_its_own_is_removed_again_in_v2(tmp_path: Path, kind: int | str) -> None:
    files = tree_of(kind, tmp_path)
    executor = files.executor()
    executor.update(CgroupValue("cpuset.cpus", "kubepods", "0-3"))
    files.settle()
    executor.restore()
    assert files.text("cpuset.cpus", "kubepods") == ""


@pytest.mark.parametrize("knob", ["memory.limit_in_bytes", "memory.min", "memory.high"])
def test_a_kernel_that_keeps_whole_pages_holds_what_was_written_and_it_is_restored(files: Files, knob: str) -> None:
    executor, before, pages = files.executor(), files.text(knob, POD), 209_715 * 4096
    desired = CgroupValue(knob, POD, "858993459")  # E19: 80 % of 1 GiB
    assert executor.update(desired) is WriteResult.WRITTEN
    files.put(knob, POD, str(pages))  # as the kernel does
    assert executor.holds(desired)
    assert not executor.holds(desired._replace(value=str(pages - 1)))
    assert executor.update(desired, cached=False) is WriteResult.SAME
    assert executor.restore() == 1
    assert files.text(knob, POD) in {before, "-1"}


def test_values_changed_by_others_are_left_alone(files: Files) -> None:
    executor = files.executor()
    executor.update(CgroupValue("memory.min", POD, "4096"))
    executor.update(CgroupValue("memory.low", POD, "4096"))
    files.put("memory.min", POD, "12288")
    assert executor.restore() == 1
    assert (files.text("memory.min", POD), files.text("memory.low", POD)) == ("12288", "0")


def test_original_values_survive_a_crash(files: Files, tmp_path: Path) -> None:
    state = tmp_path / "state"
    files.executor(state).update(CgroupValue("memory.min", POD, "4096"))
    again = files.executor(state)
    assert again.update(CgroupValue("memory.min", POD, "4096")) is WriteResult.SAME
    again.restore()
    assert files.text("memory.min", POD) == "0"
    assert not (state / "original-values.jsonl").exists()


def test_cgroups_that_are_gone_are_forgotten(files: Files, tmp_path: Path) -> None:
    state = tmp_path / "state"
    executor = files.executor(state)
    executor.update(CgroupValue("memory.min", POD, "4096"))
    executor.update(CgroupValue("memory.min", CONTAINER, "4096"))
    executor.forget([CONTAINER])
    assert (state / "original-values.jsonl").read_text().count("\n") == 1


@pytest.fixture
def kernel() -> Iterator[tuple[CgroupTree, str]]:
    if why := kernel_v1():
        pytest.skip(why)
    with kernel_tree(("besteffort", "besteffort/pod1", "besteffort/pod1/c1")) as made:
        yield made


def test_the_kernel_accepts_writes_and_original_values_are_restored(kernel: tuple[CgroupTree, str]) -> None:
    tree, kube = kernel
    executor = Executor(tree, Clock(), OriginalValues())
    folders = [f"{kube}/besteffort{rest}" for rest in ("", "/pod1", "/pod1/c1")]
    desired = (("cpu.shares", "512"), ("cpu.cfs_quota_us", "50000"), ("memory.limit_in_bytes", str(64 << 20)))
    before = {(knob, folder): executor.read(knob, folder) for knob, _ in desired for folder in folders}
    for knob, value in desired:
        counts = executor.update_levels([[CgroupValue(knob, folder, value)] for folder in folders])
        assert counts == {WriteResult.WRITTEN: 3}, (knob, counts)
        assert {executor.read(knob, folder) for folder in folders} == {value}
    assert executor.restore() == 9
    assert {key: executor.read(*key) for key in before} == before


def test_the_kernel_keeps_whole_pages_and_the_original_limit_is_restored(kernel: tuple[CgroupTree, str]) -> None:
    tree, kube = kernel
    executor = Executor(tree, Clock(), OriginalValues())
    desired = CgroupValue("memory.limit_in_bytes", f"{kube}/besteffort", str((64 << 20) + 1))
    assert executor.update(desired) is WriteResult.WRITTEN
    assert executor.read(desired.knob, desired.folder) == str(64 << 20)
    assert executor.holds(desired)
    assert executor.restore() == 1
    assert executor.read(desired.knob, desired.folder) == "-1"


def test_the_kernel_accepts_every_levelled_update_of_cpus(kernel: tuple[CgroupTree, str]) -> None:
    tree, kube = kernel
    executor = Executor(tree, Clock(), OriginalValues())
    folders = [f"{kube}/besteffort{rest}" for rest in ("", "/pod1", "/pod1/c1")]
    whole = executor.read("cpuset.cpus", folders[0])
    if whole in {None, "0"}:
        pytest.skip("this machine has one cpu")
    for cpus in ("0", "1", "0-1"):
        executor.update_levels([[CgroupValue("cpuset.cpus", folder, cpus)] for folder in folders])
        assert {executor.read("cpuset.cpus", folder) for folder in folders} == {cpus}
    assert executor.refused == 0
