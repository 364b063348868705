"""A real dockerd, without a kubelet: tests send the requests of one, as cri-dockerd and kubelets before 1.24 do.

docker    a `DockerNode`, for all tests of one module; without dockerd they skip
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from cli.dev.binaries import provide
from cli.dev.node.cgroup_tree import Tree
from cli.dev.node.container_image import write_image
from cli.dev.node.containerd_process import listens
from cli.dev.node.linux_namespaces import Space
from tests.node.real_node import require_node

IMAGE = "koordstream.test/workload:1"
WITHIN_S = 30.0
HOSTS_PROGRAMS = [f"{folder}:{folder}:ro" for folder in ("/bin", "/lib", "/lib64", "/usr") if Path(folder).exists()]
"""Mounts for a container that runs a program of this machine."""


class DockerNode(NamedTuple):
    """One dockerd.

    Attributes:
        folder: of its socket.
        tree: its cgroups.
        version: its own.
    """

    folder: Path
    tree: Tree
    version: str

    @property
    def socket(self) -> Path:
        return self.folder / "d.sock"


@pytest.fixture(scope="module")
def docker(pytestconfig: pytest.Config) -> Iterator[DockerNode]:
    dockerd = shutil.which("dockerd")
    if dockerd is None:
        pytest.skip("no dockerd on this machine")
    require_node(pytestconfig)
    folder = Path(tempfile.mkdtemp(prefix="koord-docker-"))  # short: that of a socket has at most 107 bytes
    space = Space(folder, {Path("/run/containerd"): None, Path("/etc/docker"): None})
    command = [dockerd, "--iptables=false", "--bridge=none", "--storage-driver=vfs", f"--data-root={folder}/data"]
    command += [f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", f"--host=unix://{folder}/d.sock"]
    version = subprocess.run([dockerd, "--version"], capture_output=True, text=True, check=True).stdout.split(",")[0]
    with Tree() as tree:
        try:
            space.start()
            process = space.process("dockerd", command, os.environ | {"DOCKER_RAMDISK": "1"})
            process.start()
            process.wait_until(lambda: listens(folder / "d.sock"), WITHIN_S)
            found = DockerNode(folder, tree, version)
            archive = write_image(folder / "workload.tar", provide("workload")["workload"], [IMAGE])
            docker_cli(found.socket, "load", f"--input={archive}")
            yield found
        finally:
            space.stop()
            shutil.rmtree(folder, ignore_errors=True)


def docker_cli(socket: Path, *arguments: str) -> str:
    """Returns what Docker's own client prints."""
    client = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}")
    assert client is not None
    command = [client, f"--host=unix://{socket}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Refused(Exception):
    """An answer that is an error: its status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class DockerKubelet:
    """The requests of a kubelet for one pod, to one socket."""

    def __init__(self, client: aiohttp.ClientSession, node: DockerNode, pod: str) -> None:
        self._client, self._node, self.pod = client, node, pod
        self.labels = {"io.kubernetes.pod.name": pod, "io.kubernetes.pod.uid": f"uid-{pod}", "app": pod}
        self.annotations = {"owner": "kubelet"}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with self._client.request(method, f"http://docker/v1.41{path}", json=body) as found:
            data = await found.read()
            if found.status >= 400:
                raise Refused(found.status, json.loads(data)["message"])
            return json.loads(data) if found.content_type == "application/json" and data else data

    async def run_sandbox(self) -> str:
        labels = self.labels | {f"annotation.{key}": value for key, value in self.annotations.items()}
        body = self._body(labels | {"io.kubernetes.docker.type": "podsandbox"}, Cmd=["-hold=1"])
        sandbox = await self._created("POD", body)
        await self.container("start", sandbox)
        return sandbox

    async def create(self, sandbox: str, name: str = "main", *, of_host: str = "", **resources: Any) -> str:
        """Creates a container.

        Args:
            of_host: a program of this machine that it runs with its input open, in place of the image's.
        """
        labels = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": sandbox, "annotation.hash": "h"}
        body = self._body(labels, Cmd=["-limits", "-hold=1"], Env=["A=1"])
        if of_host:
            body |= {"Entrypoint": [of_host], "Cmd": [], "OpenStdin": True, "StdinOnce": True}
            body["HostConfig"]["Binds"] = HOSTS_PROGRAMS
        body["HostConfig"] |= resources
        return await self._created(name, body)

    async def container(self, action: str, container: str, body: Any = None) -> Any:
        return await self.call("POST", f"/containers/{container}/{action}", body)

    async def stop(self, container: str) -> None:
        await self.container("stop?t=0", container)

    async def remove(self, container: str) -> None:
        await self.call("DELETE", f"/containers/{container}?force=1")

    async def inspect(self, container: str) -> Any:
        return await self.call("GET", f"/containers/{container}/json")

    async def first_values(self, container: str) -> dict[str, str]:
        """Returns the values that a container printed as its first action, by a stream of its logs."""
        path = f"/v1.41/containers/{container}/logs?stdout=1&follow=1"
        async with self._client.get(f"http://docker{path}") as found, asyncio.timeout(10):
            header = await found.content.readexactly(8)
            data = await found.content.readexactly(int.from_bytes(header[4:], "big"))
        values: dict[str, str] = json.loads(data)
        return values

    def cgroup(self, container: str, file: str) -> str:
        controller = file.partition(".")[0]
        folder = self._node.tree.folder(controller, f"kubepods/poduid-{self.pod}/{container}")
        return (folder / file).read_text().strip()

    def _body(self, labels: dict[str, str], **config: Any) -> dict[str, Any]:
        parent = f"/{self._node.tree.name}/kubepods/poduid-{self.pod}"
        host = {"CgroupParent": parent, "NetworkMode": "host", "LogConfig": {"Type": "json-file"}}
        return {"Image": IMAGE, "Labels": labels, "HostConfig": host, **config}

    async def _created(self, container: str, body: Any) -> str:
        name = f"k8s_{container}_{self.pod}_default_uid-{self.pod}_0"
        return str((await self.call("POST", f"/containers/create?name={name}", body))["Id"])


@asynccontextmanager
async def docker_kubelet(socket: Path, node: DockerNode, pod: str) -> AsyncIterator[DockerKubelet]:
    """Runs the requests of a kubelet to a socket; the pod's containers are removed at the end."""
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as client:
        yield DockerKubelet(client, node, pod)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(node.socket))) as client:
        direct = DockerKubelet(client, node, pod)
        for each in await direct.call("GET", "/containers/json?all=1"):
            if f"_{pod}_" in each["Names"][0]:
                await direct.remove(each["Id"])
