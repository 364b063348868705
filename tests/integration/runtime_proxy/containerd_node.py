"""A real containerd, without a kubelet: tests send the requests of one.

containerd    a `ContainerdNode`, for all tests of one module
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from cli.dev.node.cgroup_tree import Tree
from cli.dev.node.containerd_process import SOCKET, start_containerd
from cli.dev.node.kubelet_node import IMAGE, READY_WITHIN_S, programs
from cli.dev.node.linux_namespaces import Space
from shared.protobuf_schema import message_classes
from shared.runtime_hooks.messages import HUGEPAGE_LIMIT, POD_METADATA, RESOURCES
from tests.node.real_node import require_node

RUNTIME = "/runtime.v1.RuntimeService/"
HOST_NETWORK = 2
_CRI = message_classes(
    "runtime.v1",
    {
        "PodSandboxMetadata": POD_METADATA,
        "PodSandboxConfig": {
            "metadata": (1, "PodSandboxMetadata"),
            "log_directory": (3, "string"),
            "labels": (6, "map"),
            "annotations": (7, "map"),
            "linux": (8, "LinuxPodSandboxConfig"),
        },
        "LinuxPodSandboxConfig": {"cgroup_parent": (1, "string"), "security_context": (2, "SecurityContext")},
        "SecurityContext": {"namespace_options": (1, "NamespaceOption")},
        "NamespaceOption": {"network": (1, "int32")},
        "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
        "CreateContainerRequest": {
            "pod_sandbox_id": (1, "string"),
            "config": (2, "ContainerConfig"),
            "sandbox_config": (3, "PodSandboxConfig"),
        },
        "ContainerConfig": {
            "metadata": (1, "ContainerMetadata"),
            "image": (2, "ImageSpec"),
            "args": (4, "repeated string"),
            "envs": (6, "repeated KeyValue"),
            "labels": (9, "map"),
            "annotations": (10, "map"),
            "log_path": (11, "string"),
            "linux": (15, "LinuxContainerConfig"),
        },
        "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32")},
        "ImageSpec": {"image": (1, "string")},
        "KeyValue": {"key": (1, "string"), "value": (2, "bytes")},
        "LinuxContainerConfig": {"resources": (1, "LinuxContainerResources")},
        "LinuxContainerResources": RESOURCES,
        "HugepageLimit": HUGEPAGE_LIMIT,
        "ContainerRequest": {"container_id": (1, "string"), "timeout": (2, "int64")},
        "PodSandboxRequest": {"pod_sandbox_id": (1, "string")},
        "UpdateContainerResourcesRequest": {"container_id": (1, "string"), "linux": (2, "LinuxContainerResources")},
        "Id": {"id": (1, "string")},
        "StatusRequest": {"id": (1, "string"), "verbose": (2, "bool")},
        "PodSandboxStatusResponse": {"status": (1, "PodSandboxStatus")},
        "PodSandboxStatus": {"id": (1, "string"), "labels": (7, "map"), "annotations": (8, "map")},
        "ContainerStatusResponse": {"status": (1, "ContainerStatus"), "info": (2, "map")},
        "ContainerStatus": {"id": (1, "string"), "annotations": (13, "map")},
        "ContainerEventResponse": {"container_id": (1, "string"), "container_event_type": (2, "int32")},
        "VersionResponse": {"runtime_name": (2, "string")},
        "ListImagesResponse": {"images": (1, "repeated Id")},
    },
)
message = _CRI.__getitem__


class ContainerdNode(NamedTuple):
    """One containerd.

    Attributes:
        folder: of its socket, and of logs of containers.
        tree: its cgroups.
        ctr: containerd's own client.
    """

    folder: Path
    tree: Tree
    ctr: Path

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET


@pytest.fixture(scope="module")
def containerd(pytestconfig: pytest.Config) -> Iterator[ContainerdNode]:
    require_node(pytestconfig)
    folder = Path(tempfile.mkdtemp(prefix="koord-cri-"))  # short: that of a socket has at most 107 bytes
    space = Space(folder, {Path("/run/containerd"): None})
    with Tree() as tree:
        try:
            space.start()
            start_containerd(folder, space, have := programs(), IMAGE, READY_WITHIN_S)
            yield ContainerdNode(folder, tree, have.ctr)
        finally:
            space.stop()
            shutil.rmtree(folder, ignore_errors=True)


class Kubelet:
    """The requests of a kubelet, to one socket."""

    def __init__(self, channel: Any, node: ContainerdNode, pod: str) -> None:
        """Prepares one.

        Args:
            pod: name of the pod that it runs.
        """
        self._channel, self._node, self.pod = channel, node, pod
        self.config = message("PodSandboxConfig")(
            metadata={"name": pod, "uid": f"uid-{pod}", "namespace": "default"},
            log_directory=str(node.folder / pod),
            labels={"io.kubernetes.pod.uid": f"uid-{pod}", "app": pod},
            annotations={"owner": "kubelet"},
            linux={
                "cgroup_parent": f"/{node.tree.name}/kubepods/poduid-{pod}",
                "security_context": {
                    "namespace_options": {"network": HOST_NETWORK}
                },  # the proxy does not know the field
            },
        )

    async def call(self, method: str, request: Any, *, wait: bool = True) -> bytes:
        """Calls the runtime; one that is away is waited for, as a kubelet repeats its calls."""
        sent = self._channel.unary_unary(RUNTIME + method)
        answer: bytes = await sent(request.SerializeToString(), timeout=20, wait_for_ready=wait)
        return answer

    async def run_sandbox(self) -> str:
        (self._node.folder / self.pod).mkdir(exist_ok=True)
        found = await self.call("RunPodSandbox", message("RunPodSandboxRequest")(config=self.config))
        return str(message("Id").FromString(found).id)

    async def create(self, sandbox: str, name: str = "main", **resources: Any) -> str:
        request = message("CreateContainerRequest")(
            pod_sandbox_id=sandbox,
            sandbox_config=self.config,
            config={
                "metadata": {"name": name},
                "image": {"image": IMAGE},
                "args": ["-limits"],
                "envs": [{"key": "A", "value": b"1"}, {"key": "RAW", "value": b"\xff"}],
                "annotations": {"io.kubernetes.container.hash": "h"},
                "log_path": f"{name}.log",
                "linux": {"resources": resources},
            },
        )
        return str(message("Id").FromString(await self.call("CreateContainer", request)).id)

    async def container(self, method: str, container: str) -> bytes:
        return await self.call(method, message("ContainerRequest")(container_id=container))

    async def remove(self, container: str) -> None:
        """Removes a container that was stopped; again while the runtime has not noted its end, as a kubelet does."""
        async with asyncio.timeout(20):
            while True:
                try:
                    await self.container("RemoveContainer", container)
                except grpc.aio.AioRpcError as error:
                    if "still running" not in (error.details() or ""):
                        raise
                    await asyncio.sleep(0.1)
                else:
                    return

    async def sandbox(self, method: str, sandbox: str) -> bytes:
        return await self.call(method, message("PodSandboxRequest")(pod_sandbox_id=sandbox))

    async def update(self, container: str, **resources: Any) -> None:
        request = message("UpdateContainerResourcesRequest")(container_id=container, linux=resources)
        await self.call("UpdateContainerResources", request)


def channel(socket: Path) -> Any:
    return grpc.aio.insecure_channel(
        f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 100))
    )
