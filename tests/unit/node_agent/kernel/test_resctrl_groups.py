"""Groups of single pods, on files laid out as resctrl's."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.node_agent import feature_gates
from services.node_agent.kernel.resctrl_groups import NoGroup
from services.node_agent.qos_manager.strategies.resctrl import BadShare
from shared.domain.slo_defaults import NodeSloSpec, in_force
from tests.unit.node_agent.kernel.resctrl_tree import OWN, ResctrlTree, cgroups_of

GATES = feature_gates.parse("Resctrl=true,RdtResctrl=false")
SPEC = in_force(NodeSloSpec())


def test_a_group_is_made_once_with_its_schemata_and_anew_where_it_is_gone_or_has_changed(tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path).supported()
    assert tree.groups.make("u1", OWN) == "koordlet-u1"
    schemata = tree.root / "koordlet-u1/schemata"
    assert schemata.read_text() == "L3:0=3f;1=3f;\n"
    schemata.write_text("written by nobody else\n")
    tree.groups.make("u1", OWN)
    assert schemata.read_text() == "written by nobody else\n", "known, so nothing is read or written"
    tree.groups.make("u1", OWN.replace("50", "10"))
    assert schemata.read_text() == "L3:0=3;1=3;\n"
    tree.emptied("u1")
    schemata.parent.rmdir()
    tree.groups.make("u1", OWN.replace("50", "10"))
    assert schemata.exists()


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "u" * 64])
def test_a_uid_that_is_no_part_of_a_name_makes_and_removes_nothing(uid: str, tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path).supported()
    with pytest.raises(NoGroup, match="cannot be part of a group's name"):
        tree.groups.make(uid, OWN)
    tree.groups.remove(uid)
    assert tree.root.is_dir()
    assert tree.names() == []


def test_a_node_without_resctrl_and_a_bad_annotation_are_named(tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path)
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cpuinfo").write_text("flags\t: fpu\n")
    with pytest.raises(NoGroup, match=r"this node has no resctrl at .*/sys/fs/resctrl"):
        tree.agent(proc).make("u1", OWN)
    tree.supported()
    with pytest.raises(BadShare, match=r"annotation node\.koordinator\.sh/resctrl"):
        tree.groups.make("u1", "[]")
    assert tree.names() == []


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system that takes two files more."""
    if os.geteuid() != 0:
        pytest.skip("no file system may be mounted here")
    folder = tmp_path / "sys/fs/resctrl"
    folder.mkdir(parents=True)
    # The root, info, L3, cbm_mask and schemata.
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", "nr_inodes=6", "tmpfs", str(folder)), check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(("umount", str(folder)), check=True)


def test_where_the_kernel_makes_no_further_group_none_is_left_without_its_schemata(full: Path) -> None:
    tree = ResctrlTree(full).supported()
    with pytest.raises(NoGroup, match="No space left on device"):
        tree.groups.make("u1", OWN)  # the folder is made, its file is not
    assert tree.names() == []
    (tree.root / "another").mkdir()
    with pytest.raises(NoGroup, match="No space left on device"):
        tree.groups.make("u1", OWN)


def test_groups_of_pods_that_are_gone_are_removed_also_by_a_later_run(tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path).supported()
    for uid in ("known", "not-received", "gone"):
        tree.groups.make(uid, OWN)
    (tree.root / "other").mkdir()
    tree.emptied("gone")
    own = cgroups_of("known")
    started_again = tree.agent()
    present = {"known", "not-received"}
    assert tree.kept(9.9, lambda: started_again.reconcile(SPEC, [own], GATES, present)) == [
        "koordlet-gone", "koordlet-known", "koordlet-not-received",
    ]  # fmt: skip
    assert tree.kept(0.1, lambda: started_again.reconcile(SPEC, [own], GATES, present)) == [
        "koordlet-known", "koordlet-not-received",
    ]  # fmt: skip
    assert (tree.root / "other").is_dir()


def test_a_pod_without_its_annotation_any_more_loses_its_group(tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path).supported()
    tree.groups.make("a", OWN)
    tree.emptied("a")
    assert tree.kept(10, lambda: tree.groups.reconcile(SPEC, [cgroups_of("a", "")], GATES, {"a"})) == []
