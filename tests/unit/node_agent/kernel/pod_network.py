"""A node and a pod with real interfaces, in network namespaces of their own."""

import subprocess
import sys
from pathlib import Path

from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.ingress_limits import IngressLimits
from tests.unit.node_agent.kernel.test_network_qos import run

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
