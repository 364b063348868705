"""Limits of what pods receive, on real pairs of interfaces in network namespaces of their own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.ingress_limits import RECHECK_NS, IngressLimits
from tests.unit.node_agent.kernel.test_network_qos import pod_cgroups, run

RECEIVER = """
import socket, time
with socket.create_server(("10.77.0.2", 7000)) as server:
    print("listening", flush=True)
    while True:
        received, _ = server.accept()
        with received:
            while received.recv(65536):
                pass
            received.sendall(b".")
"""
SENDER = """
import socket, time
began = time.monotonic()
with socket.create_connection(("10.77.0.2", 7000)) as sent:
    sent.sendall(bytes(300_000))
    sent.shutdown(socket.SHUT_WR)
    sent.recv(1)
print(time.monotonic() - began)
"""


class Machine:
    """A node and a pod that listens, each with a network of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.node, self._pod, self._folder = f"{name}n", f"{name}p", folder
        for space in (self.node, self._pod):
            run("ip", "netns", "add", space)
        run("ip", "-n", self.node, "link", "add", "veth7", "type", "veth", "peer", "name", "eth0", "netns", self._pod)
        for space, card, address in ((self.node, "veth7", "10.77.0.1"), (self._pod, "eth0", "10.77.0.2")):
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", card)
            run("ip", "-n", space, "link", "set", card, "up")
        self.process = subprocess.Popen(
            ("ip", "netns", "exec", self._pod, sys.executable, "-c", RECEIVER), stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"listening\n"
        cgroup = folder / "cpu/kubepods/poda/c"
        cgroup.mkdir(parents=True)
        (cgroup / "cgroup.procs").write_text(f"{self.process.pid}\n")
        self.now_ns = 0
        self._calls = folder / "calls"
        counting = ("sh", "-c", f'echo "$@" >> {self._calls}; exec ip netns exec {self.node} "$@"', "counted")
        self.limits = IngressLimits(Processes(folder, Path("/proc")), lambda: self.now_ns, counting)

    def calls(self) -> list[str]:
        """Returns the commands that concerned the node's interfaces since the last call of this."""
        found = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.write_text("")
        return found

    def seconds(self) -> float:
        """Returns how long 300 kB take from the node to the pod."""
        return float(run("ip", "netns", "exec", self.node, sys.executable, "-c", SENDER))

    def qdisc(self) -> str:
        return run("ip", "netns", "exec", self.node, "tc", "qdisc", "show", "dev", "veth7", "root")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for space in (self.node, self._pod):
            subprocess.run(("ip", "netns", "del", space), check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("tc", "ip", "nsenter"))):
        pytest.skip("no network name space may be made here, or tc, ip and nsenter are not installed")
    try:
        made = Machine(tmp_path, f"koord{os.getpid()}")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network name space can be made here: {error.stderr.strip()}")
    yield made
    made.close()


def test_a_pod_receives_no_more_than_its_limit_and_the_limit_goes_with_the_annotation(machine: Machine) -> None:
    limited = pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')
    assert machine.seconds() < 0.4
    machine.limits.reconcile([limited])
    assert "tbf 7c0d:" in machine.qdisc()
    run("ip", "netns", "exec", machine.node, "tc", "qdisc", "del", "dev", "veth7", "root")
    machine.limits.reconcile([limited])
    assert "tbf" not in machine.qdisc(), "not looked at yet"
    machine.now_ns += RECHECK_NS
    machine.limits.reconcile([limited])
    assert machine.seconds() > 0.5, "300 kB at 4 Mbit/s less the bucket"
    machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"2M"}')])
    assert "rate 2Mbit" in machine.qdisc()
    machine.limits.reconcile([pod_cgroups("a", "LS")])
    assert "tbf" not in machine.qdisc()
    machine.limits.reconcile([limited])
    machine.limits.release()
    assert "tbf" not in machine.qdisc()


def test_limits_of_other_software_and_pods_in_the_nodes_network_are_left_alone(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"4M"}', host=True)])
    assert "tbf" not in machine.qdisc()
    words = ("qdisc", "add", "dev", "veth7", "root", "handle", "9:", "tbf", "rate", "1gbit", "burst", "1mb")
    run("ip", "netns", "exec", machine.node, "tc", *words, "latency", "50ms")
    for _ in range(2):
        machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')])
        machine.now_ns += RECHECK_NS
    machine.limits.release()
    assert "tbf 9:" in machine.qdisc()
    assert ["of other software" in str(record.__dict__["why"]) for record in caplog.records] == [True]


def test_a_pod_without_a_process_is_limited_later(machine: Machine, tmp_path: Path) -> None:
    procs = tmp_path / "cpu/kubepods/poda/c/cgroup.procs"
    procs.write_text("")
    limited = [pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')]
    machine.limits.reconcile(limited)
    assert "tbf" not in machine.qdisc()
    procs.write_text(f"{machine.process.pid}\n")
    machine.limits.reconcile(limited)
    assert "tbf 7c0d:" in machine.qdisc()


def test_programs_are_run_for_pods_that_are_new_or_changed_and_once_a_minute(machine: Machine) -> None:
    limited = pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')
    machine.limits.reconcile([limited])
    assert len(machine.calls()) == 3, "disciplines, interfaces, the limit"
    machine.limits.reconcile([limited])
    assert machine.calls() == []
    machine.now_ns += RECHECK_NS
    machine.limits.reconcile([limited])
    assert machine.calls() == ["tc qdisc show"]
    machine.limits.reconcile([limited._replace(containers={**limited.containers, "2": "kubepods/poda/d"})])
    assert "tc qdisc show" in machine.calls(), "a new container may be of a new sandbox, which has another interface"
