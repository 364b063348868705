"""koord up on a real Kubernetes API: one command, one pod, one explanation."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from cli.processes.free_ports import free_port
from cli.supervisor.cluster_folder import UnknownCluster, folder_of
from shared.errors import KoordError
from tests.cluster.fixtures import MakeNodes
from tests.support.prepared_folders import copy_installation, install_base
from tests.support.terminal import CTRL_C, Terminal
from tests.support.waiting import wait_until

SIMULATED = {"KOORD_SIMULATOR_NODES": "3"}

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1"},
    "spec": {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
    },
}


def koord(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cli", *arguments], capture_output=True, text=True, check=False)


def events_of(folder: list[str]) -> str:
    return koord("events", *folder, "-o", "json").stdout


def types_of(folder: list[str]) -> list[str]:
    return [json.loads(line)["type"].split(".")[2] for line in events_of(folder).splitlines()]


def uid_of(cluster: Cluster) -> str:
    return str(cluster.api.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])


def test_a_pod_is_bound_and_explained(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    kube_nodes("node-a")
    folder = ["--dir", str(tmp_path / "up")]
    with Terminal(["up", *folder, "--service", "simulator"], SIMULATED) as terminal:  # the README's order
        terminal.wait_for(r"simulator +leading", 60)
        wait_until(lambda: "NodeObserved" in events_of(folder), "simulated nodes")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
    with Terminal(["up", "--kubeconfig", str(kube_cluster.kubeconfig()), *folder]) as terminal:
        terminal.wait_for(r"gateway +leading", 60)
        terminal.wait_for(r"scheduler +leading", 60)
        kube_cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/pods", POD)
        events = [sys.executable, "-m", "cli", "events", *folder, "-o", "json", "--follow", "--type", "PodBound"]
        with subprocess.Popen(events, stdout=subprocess.PIPE) as following:
            assert following.stdout
            bound = json.loads(following.stdout.readline())["data"]
            following.terminate()
        assert bound["pod"] == f"{namespace}/web-1"
        pod = kube_cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/pods/web-1")
        assert pod["spec"]["nodeName"] == bound["node"]
        why = [sys.executable, "-m", "cli", "why", "pod", f"{namespace}/web-1", *folder]
        reported = subprocess.run(why, capture_output=True, text=True, check=True).stdout
        assert f"-> {bound['node']}" in reported
        assert "nodes passed every filter" in reported
        assert "node-0000" not in events_of(folder), "the simulated nodes are in a log of their own"
        assert f"the log describes cluster {uid_of(kube_cluster)}" in koord("doctor", *folder).stdout
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0


def test_a_folder_that_holds_the_log_of_another_cluster_is_refused(kube_cluster: Cluster, tmp_path: Path) -> None:
    folder = ["--dir", str(copy_installation(tmp_path / "simulated"))]
    with Terminal(["up", *folder, "--service", "simulator"], SIMULATED) as terminal:
        terminal.wait_for(r"simulator +leading", 60)
        wait_until(lambda: "ClusterIdentified" in events_of(folder), "the cluster's event")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
    before = len(events_of(folder).splitlines())
    kubeconfig = kube_cluster.kubeconfig()
    refused = koord("up", *folder, "--kubeconfig", str(kubeconfig), "--service", "gateway")
    assert refused.returncode == 1
    assert (
        f"describes the simulated cluster, not that of {kubeconfig}: nothing was started or written" in refused.stderr
    )
    assert "leave out --kubeconfig, or give another folder with --dir" in refused.stderr
    assert len(events_of(folder).splitlines()) == before


def test_a_second_system_for_a_cluster_from_another_folder_is_refused_before_anything_is_started(
    kube_cluster: Cluster, tmp_path: Path
) -> None:
    install_base(kube_cluster)
    first, second = (["--dir", str(tmp_path / name)] for name in ("first", "second"))
    up = ["up", "--kubeconfig", str(kube_cluster.kubeconfig()), "--service", "gateway"]
    with Terminal([*up, *first]) as terminal:
        terminal.wait_for(r"gateway +leading", 60)
        wait_until(lambda: "InitialListCompleted" in types_of(first), "the first lists")
        began = time.monotonic()
        refused = koord(*up, *second)
        assert time.monotonic() - began < 8, "nothing is started: it took 12 s"
        assert refused.returncode == 1
        log = json.loads(koord("events", *first, "--type", "ClusterIdentified", "-o", "json").stdout.splitlines()[0])
        assert f"is managed by another live system: log {log['data']['log']}, " in refused.stderr
        assert "koord up --shadow" in refused.stderr
        assert not list((tmp_path / "second").glob("*/postgres")), "it has no log"
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
    with Terminal([*up, *second]) as terminal:  # the first has ended
        terminal.wait_for(r"gateway +leading", 60)
        wait_until(lambda: "InitialListCompleted" in types_of(second), "the lists of the second")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0


async def test_a_cluster_that_does_not_respond_has_the_folder_of_its_address(
    kube_cluster: Cluster, tmp_path: Path
) -> None:
    there = kube_cluster.kubeconfig()
    folder = await folder_of(tmp_path, there)
    assert folder.name == f"cluster-{uid_of(kube_cluster)[:8]}"
    away = tmp_path / "away"
    ca = kube_cluster.ca_file.read_bytes()
    write_kubeconfig(away, url=f"https://127.0.0.1:{free_port()}", ca=ca, user="ada", credentials="token")
    with pytest.raises(UnknownCluster, match=r"away cannot be identified: .*koord up"):
        await folder_of(tmp_path, away)
    unknown = write_kubeconfig(tmp_path / "unknown", url=kube_cluster.url, ca=ca, user="ada", credentials="token")
    assert await folder_of(tmp_path, unknown) == folder, "the address was recorded, although this user is refused"
    away.write_text("no: kubeconfig")
    with pytest.raises(KoordError, match="away"):
        await folder_of(tmp_path, away)
