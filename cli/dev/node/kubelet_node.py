"""One real node on this machine: a kubelet of a cluster, with containerd and runc below it.

    with Cluster() as cluster, RealNode(cluster, "worker") as node:
        cluster.api.call("POST", "/api/v1/namespaces/default/pods", ...)   # image `IMAGE`, hostNetwork, imagePullPolicy
        Never node.tree.of_pod(uid)                                              # its cgroup

Needs root and cgroup v1. Everything lies in a temporary folder, in cgroups below one folder, and in namespaces that end
with this process; `stop` takes all of it away. Pods share the machine's network: they listen on 127.0.0.1, on ports
that are free.
"""

import atexit
import os
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from cli.dev.binaries import Report, provide
from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.dev.node.cgroup_tree import NoTree, Tree, check_cgroups
from cli.dev.node.config_files import Programs, write_kubelet
from cli.dev.node.containerd_process import SOCKET, listens, start_containerd
from cli.dev.node.linux_namespaces import Space
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port

IMAGE = "koordstream.test/workload:1"
"""Runs the program of tests/node/tools/workload."""
READY_WITHIN_S = 90.0
PROXY_SOCKET = "proxy.sock"
NAMES = (  # as in `Programs`
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "loopback",
    "workload",
)
ROLE = "koordstream-dev-nodes"


def check_machine() -> None:
    """Reports whether this machine can be a node.

    Raises:
        NoTree: saying what is missing.
    """
    if os.geteuid() != 0:
        raise NoTree("a real node needs root: it makes cgroups, mounts and namespaces")
    check_cgroups()


def programs(report: Report = click.echo) -> Programs:
    """The programs of a node; those that are missing are built.

    Raises:
        ProgramsMissing, BuildFailed: see `provide`.
    """
    found = provide(*NAMES, report=report)
    return Programs(*(found[name] for name in NAMES))


class RealNode:
    """A node that pods run on.

    Attributes:
        name: of its Node.
        cluster: that it belongs to.
        folder: sockets, the state of its programs, logs of containers; gone at the end.
        logs: `kubelet.log`, `containerd.log`.
        tree: its cgroups.
        proxy: the runtime proxy; None without one.
    """

    def __init__(self, cluster: Cluster, name: str, logs: Path | None = None, *, runtime_proxy: bool = False) -> None:
        """Prepares one.

        Args:
            logs: where logs of programs go; below `folder` otherwise.
            runtime_proxy: the kubelet reaches containerd through the runtime proxy.
        """
        self.name = name
        self.cluster = cluster
        self.logs = logs
        self._runtime_proxy = runtime_proxy
        self.proxy: Process | None = None
        self.tree = Tree()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def container_logs(self) -> Path:
        """Where the kubelet links the logs of containers, which names them."""
        return self.folder / "containers"

    @property
    def registrations(self) -> Path:
        """Folder in which hook servers register at the runtime proxy."""
        return self.folder / "hookserver.d"

    def start(self) -> None:
        """Starts everything; returns when the node is Ready and takes pods.

        Raises:
            NoTree: no root, or no cgroups to write in.
            ProgramFailed: a program did not come up; with the end of its log.
        """
        check_machine()
        have = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="koord-node-"))
        self._space = Space(self.logs or self.folder, self._mounts())
        atexit.register(self.stop)
        try:
            self.container_logs.mkdir()
            self.tree.__enter__()
            self._space.start()
            self.containerd = start_containerd(self.folder, self._space, have, IMAGE, READY_WITHIN_S)
            if self._runtime_proxy:
                self._start_proxy()
            self._start_kubelet(have, self.folder / (PROXY_SOCKET if self._runtime_proxy else SOCKET))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every program and container, and removes what there was of them. Harmless when repeated."""
        atexit.unregister(self.stop)
        if self.proxy is not None:
            self.proxy.kill()
        self._space.stop()
        self.tree.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.cluster.api.call("DELETE", f"/api/v1/nodes/{self.name}")
        except (OSError, ApiRefused):
            return  # the cluster has ended before, or knows of no such node

    def status(self) -> dict[str, Any]:
        """The status of its Node."""
        found: dict[str, Any] = self.cluster.api.call("GET", f"/api/v1/nodes/{self.name}")["status"]
        return found

    def _mounts(self) -> dict[Path, Path | None]:
        return {
            Path("/var/log/containers"): self.container_logs,
            Path("/var/lib/kubelet"): None,
            Path("/run/containerd"): None,
        }

    def _start_proxy(self) -> None:
        socket = self.folder / PROXY_SOCKET
        command: list[str | Path] = [sys.executable, "-m", "cli", "run", "runtime-proxy"]
        command += [f"--koord-runtimeproxy-endpoint={socket}"]
        command += [f"--remote-runtime-service-endpoint={self.folder / SOCKET}"]
        env = os.environ | {"KOORD_RUNTIME_PROXY_REGISTRATIONS": str(self.registrations)}
        self.proxy = Process("runtime-proxy", command, (self.logs or self.folder) / "runtime-proxy.log", env=env)
        self.proxy.start()
        self.proxy.wait_until(lambda: listens(socket), READY_WITHIN_S)

    def _start_kubelet(self, have: Programs, runtime: Path) -> None:
        health = free_port()
        config = write_kubelet(
            self.folder, cgroup_root=f"/{self.tree.name}", port=free_port(), health_port=health, runtime=runtime
        )
        self._grant()
        kubeconfig = self.cluster.kubeconfig(f"system:node:{self.name}", groups=("system:nodes",))
        command: list[str | Path] = [
            have.kubelet,
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--root-dir={self.folder}/kubelet",
            f"--cert-dir={self.folder}/kubelet-pki",
        ]
        self.kubelet: Process = self._space.process("kubelet", command)
        self.kubelet.start()
        self.kubelet.wait_until(lambda: _healthy(health) and self._ready(), READY_WITHIN_S)
        # Admission taints every new node; a node controller would take the taint away, and none runs.
        self.cluster.api.call("PATCH", f"/api/v1/nodes/{self.name}", {"spec": {"taints": None}})

    def _grant(self) -> None:
        """Nodes have the rights of the role that every cluster has for them."""
        body = {
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }
        try:
            self.cluster.api.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
        except ApiRefused as refused:
            if refused.reason != "AlreadyExists":
                raise

    def _ready(self) -> bool:
        try:
            conditions = {one["type"]: one["status"] for one in self.status().get("conditions", [])}
        except (ApiRefused, OSError):
            return False
        return conditions.get("Ready") == "True"


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return True
    except OSError:
        return False
