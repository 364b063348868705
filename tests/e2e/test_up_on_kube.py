"""koord up on a real Kubernetes API: one command, one pod, one explanation."""

import json
import subprocess
import sys
from pathlib import Path

from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import MakeNodes
from tests.support.terminal import CTRL_C, Terminal

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1"},
    "spec": {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
    },
}


def test_a_pod_is_bound_and_explained(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    kube_nodes("node-a")
    folder = ["--dir", str(tmp_path / "up")]
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
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
