"""`koord dev cluster` is what a person gets."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.dev.binaries import provide
from cli.processes.free_ports import is_free
from tests.cluster.fixtures import require_programs
from tests.integration.cli.system_processes import processes_of
from tests.support.pods import written_pod
from tests.support.waiting import wait_until

K8S = Path(__file__).parents[2] / "k8s"
RUN = [sys.executable, "-c", "from cli.dev.command import dev; dev()", "cluster"]


@pytest.mark.kube
def test_it_prints_its_usage_ends_deleted_pods_and_is_gone_after_ctrl_c(pytestconfig: pytest.Config) -> None:
    require_programs(pytestconfig)
    with subprocess.Popen(
        [*RUN, "--nodes", "3"], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        reported = ""
        for line in running.stdout:
            reported += line
            if line.startswith("Ctrl-C"):
                break
        kubeconfig = re.search(r"export KUBECONFIG=(\S+)", reported)
        assert kubeconfig, reported

        def kubectl(*arguments: str | Path, stdin: str = "") -> tuple[str, str]:
            command = [str(provide("kubectl")["kubectl"]), f"--kubeconfig={kubeconfig[1]}", *map(str, arguments)]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout, done.stderr

        names = kubectl("get", "nodes,noderesourcetopologies", "-o", "name")[0].split()
        assert {f"node/node-{number}" for number in range(3)} <= set(names)
        assert {f"noderesourcetopology.topology.node.k8s.io/node-{number}" for number in range(3)} <= set(names)
        assert kubectl("apply", "-k", K8S / "base")[1] == "", "warnings about objects that the command has applied"
        kubectl("apply", "-f", "-", stdin=json.dumps(written_pod(nodeName="node-1")))
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/web")
        kubectl("delete", "--timeout=60s", "pod/web")  # which waits until the pod is gone
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    assert not Path(kubeconfig[1]).exists()


@pytest.mark.kube
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_start_and_what_it_has_started(
    pytestconfig: pytest.Config, tmp_path: Path, number: signal.Signals
) -> None:
    require_programs(pytestconfig)
    command = [sys.executable, "-m", "cli", "dev", "cluster", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as running:
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.rglob("etcd.log")), "etcd runs")
        running.send_signal(number)
        assert running.wait(20) == 130
        assert running.stderr
        assert "Traceback" not in running.stderr.read()
    assert not processes_of(tmp_path)


@pytest.mark.kube
def test_a_killed_command_takes_its_programs_along(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    require_programs(pytestconfig)
    with subprocess.Popen(
        [*RUN, "--dir", str(tmp_path), "--no-controllers"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        url = running.stdout.readline().split(";")[0].split()[-1]
        running.kill()
    port = int(url.rsplit(":", 1)[1])
    wait_until(lambda: is_free(port), "end of the API server")
