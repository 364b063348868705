"""The tests' node is a real one: pods run in cgroups that its kubelet makes, and nothing of it is left at the end."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cli.dev.node.cgroup_tree import PREFIX, ROOT, NoTree, Tree
from cli.dev.node.kubelet_node import RealNode, check_machine
from cli.dev.node.linux_namespaces import Space
from cli.processes.free_ports import free_port
from tests.node.pod_bodies import get_json, pod, wait_until_it_listens
from tests.node.real_node import UNAVAILABLE, require_node
from tests.support.waiting import wait_until


def _phase(node: RealNode, name: str) -> str:
    return str(node.cluster.api.call("GET", f"/api/v1/namespaces/default/pods/{name}")["status"]["phase"])


def test_a_pod_runs_in_a_cgroup_of_its_own_and_answers(real_node: RealNode) -> None:
    port = free_port()
    body = pod("first", f"-listen=127.0.0.1:{port}", requests={"cpu": "100m"}, limits={"memory": "256Mi"})
    body["spec"]["nodeName"] = real_node.name
    uid = real_node.cluster.api.call("POST", "/api/v1/namespaces/default/pods", body)["metadata"]["uid"]
    wait_until(lambda: _phase(real_node, "first"), "running pod", holds=lambda phase: phase == "Running")
    memory = real_node.tree.of_pod(uid, "memory")
    assert memory
    assert (memory / "memory.limit_in_bytes").read_text().strip() == str(256 * 2**20)
    assert any(uid in str(link.readlink()) for link in real_node.container_logs.iterdir())
    wait_until_it_listens(port)
    get_json(port, "/hold?mib=64", post=True)
    assert int((memory / "memory.usage_in_bytes").read_text()) > 64 * 2**20
    assert get_json(port, "/latency?for=1s&every=50ms&rounds=1")["count"] == 20


@pytest.mark.node
def test_processes_mounts_and_cgroups_end_with_their_node(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    require_node(pytestconfig)
    before = Path("/proc/self/mountinfo").read_text()
    with Tree() as tree:
        space = Space(tmp_path, {Path("/run/koord-test-of-spaces"): None})
        space.start()
        # Two generations, of which the second has left its parent, like a container's shim.
        marker = f"{time.monotonic_ns()}"
        space.process(
            "daemon", ["/bin/sh", "-c", f"setsid sleep 3600.{marker} & sleep 1; touch {tmp_path}/ran"]
        ).start()
        inner = tree.folder("pids", "kubepods/besteffort")
        inner.mkdir(parents=True)
        wait_until((tmp_path / "ran").exists, "second generation")
        assert _running(marker)
        (inner / "cgroup.procs").write_text(_running(marker)[0])
        space.stop()
        assert not _running(marker)
    assert not list(ROOT.glob(f"*/{tree.name}"))
    assert not Path("/run/koord-test-of-spaces").exists()
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.node
def test_leftovers_of_a_killed_test_are_removed_by_the_next(pytestconfig: pytest.Config) -> None:
    require_node(pytestconfig)
    left = [ROOT / "cpu" / f"{PREFIX}{2**22 + 1}-1", ROOT / "memory" / f"{PREFIX}{2**22 + 1}-1"]
    for folder in left:
        (folder / "kubepods").mkdir(parents=True)
    with Tree() as tree:
        assert tree.folder("cpu").is_dir()
        assert not any(folder.exists() for folder in left)
    assert not list(ROOT.glob(f"*/{tree.name}"))


def test_without_root_one_line_names_the_missing_right_and_a_required_node_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoTree, match=r"^a real node needs root: .*") as missing:
        check_machine()
    unavailable = SimpleNamespace(stash=pytest.Stash())
    unavailable.stash[UNAVAILABLE] = str(missing.value)
    config = cast("pytest.Config", unavailable)
    monkeypatch.delenv("KOORD_REQUIRE_NODE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        require_node(config)
    monkeypatch.setenv("KOORD_REQUIRE_NODE", "1")
    with pytest.raises(pytest.fail.Exception, match="needs root"):
        require_node(config)


def _running(marker: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            if (
                process.name.isdigit()
                and marker in (process / "cmdline").read_text()
                and "sleep\0" in (process / "cmdline").read_text()
            ):
                found.append(process.name)
        except OSError:
            continue
    return [pid for pid in found if int(pid) != os.getpid()]
