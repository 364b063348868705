"""Values of a pod's cgroup that are written as soon as its sandbox runs."""

from pathlib import Path

import pytest

from services.node_agent.cgroup.executor import CgroupTree, Executor
from services.node_agent.cgroup.kubepods_layout import KubepodsLayout
from services.node_agent.cgroup.original_values import OriginalValues
from services.node_agent.qos_manager.enforcers.hook_value_files import PodCgroupWriter
from services.node_agent.runtime_hooks.hook_values import HookValues
from tests.unit.node_agent.cgroup.cgroup_trees import KINDS
from tests.unit.node_agent.qos_manager.managed_node import ManagedNode

VALUES = HookValues(512, 50_000, 2**30)
NEW = "kubepods/besteffort/podnew"


def writer_of(node: ManagedNode) -> PodCgroupWriter | None:
    return node.qos_manager.new_pods


@pytest.mark.parametrize("kind", KINDS)
def test_the_cgroup_of_a_new_pod_gets_its_values_and_at_the_end_those_of_the_kubelet(
    tmp_path: Path, kind: int | str
) -> None:
    node = ManagedNode(tmp_path, kind)
    assert writer_of(node) is None, "nothing is measured yet"
    node.run_cycle(node=1, ls=0.1, be=0.1)
    writer = writer_of(node)
    assert writer is not None
    node.files.make(NEW)
    assert writer.write("new", "BestEffort", VALUES)
    executor = node.qos_manager.executor
    assert executor is not None
    held = [executor.read(knob, NEW) for knob in ("cpu.cfs_quota_us", "memory.limit_in_bytes")]
    assert held == ["50000", str(2**30)]
    assert node.files.text("cpu.shares", NEW) == ("512" if kind == 1 else "20")
    node.qos_manager.release()
    assert executor.read("cpu.cfs_quota_us", NEW) == "-1"


@pytest.mark.parametrize(
    ("uid", "kube_qos"), [("gone", "BestEffort"), ("../besteffort", "Guaranteed"), ("", "Guaranteed"), ("new", "Odd")]
)
def test_a_pod_without_a_cgroup_or_a_name_is_written_nowhere(tmp_path: Path, uid: str, kube_qos: str) -> None:
    node = ManagedNode(tmp_path, 1)
    node.run_cycle(node=1, ls=0.1, be=0.1)
    writer, executor = writer_of(node), node.qos_manager.executor
    assert writer is not None
    assert executor is not None
    before = executor.written
    assert not writer.write(uid, kube_qos, VALUES)
    assert executor.written == before


def test_slices_of_the_systemd_driver_have_underscores(tmp_path: Path) -> None:
    top = "kubepods.slice"
    layout = KubepodsLayout(((top, "kubepods-pod", ".slice"),) * 3, top, "systemd")
    folder = tmp_path / f"cpu/agents/{top}/kubepods-pod1_2.slice"
    folder.mkdir(parents=True)
    (folder / "cpu.shares").write_text("2\n")
    executor = Executor(CgroupTree(tmp_path, 1, f"agents/{top}"), lambda: 0, OriginalValues())
    assert PodCgroupWriter(executor, layout, "/agents").write("1-2", "Guaranteed", HookValues(shares=1024))
    assert (folder / "cpu.shares").read_text() == "1024"


def test_a_container_that_is_created_gets_its_identity_in_v1_where_the_kernel_has_it(tmp_path: Path) -> None:
    node = ManagedNode(tmp_path, 1)
    node.run_cycle(node=1, ls=0.1, be=0.1)
    writer, cid = writer_of(node), "c" * 64
    assert writer is not None
    assert writer.identities_in_files
    node.files.make(NEW)
    writer.write_identity("new", "BestEffort", cid, -1)  # it has no cgroup yet
    node.files.make(f"{NEW}/{cid}")
    writer.write_identity("new", "BestEffort", cid, -1)
    assert node.files.text("cpu.bvt_warp_ns", f"{NEW}/{cid}") == "-1"
