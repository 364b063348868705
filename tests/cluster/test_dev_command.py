"""`koord dev cluster` is what a person gets."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.dev.binaries import provide
from cli.processes.free_ports import is_free
from tests.cluster.fixtures import require_programs
from tests.support.waiting import wait_until

RUN = [sys.executable, "-c", "from cli.dev.command import dev; dev()", "cluster"]


@pytest.mark.kube
def test_it_prints_its_usage_and_is_gone_after_ctrl_c(pytestconfig: pytest.Config) -> None:
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
        kubectl = provide("kubectl")["kubectl"]
        command = [str(kubectl), "get", "nodes,crd", "-o", "name"]
        environment = os.environ | {"KUBECONFIG": kubeconfig[1]}
        names = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        assert {"node/node-0", "node/node-1", "node/node-2"} <= set(names)
        assert any("noderesourcetopologies" in name for name in names)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    assert not Path(kubeconfig[1]).exists()


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
