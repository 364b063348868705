"""The pod-resources proxy over real gRPC connections: a kubelet that answers, refuses, streams, stops and comes back.

What a real kubelet does behind it is in tests/node.
"""

import asyncio
import json
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.node_agent.pod_resources.allocated_devices import LIST, ListPodResourcesResponse
from services.node_agent.pod_resources.proxy import SOCKET, PodResourcesProxy
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents import node_pods
from shared.agents.node_pods import NodePods
from shared.kube.system_annotations import DEVICE_ALLOCATED
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.pods import kept_pod
from tests.support.waiting import until

ANSWER: bytes = ListPodResourcesResponse(
    pod_resources=[{"name": "train", "namespace": "default", "containers": [{"name": "main"}]}]
).SerializeToString()
GET, WATCH = "/v1.PodResourcesLister/Get", "/v1.PodResourcesLister/Watch"


class Kubelet(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """The kubelet's side of the API."""

    def service(self, details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            if details.method == GET:
                await context.abort(grpc.StatusCode.NOT_FOUND, "pod x not found", (("k", "v"),))
            return ANSWER

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            for number in (b"1", b"2", request):
                yield number

        if details.method == WATCH:
            return grpc.unary_stream_rpc_method_handler(stream)
        if details.method in {LIST, GET}:
            return grpc.unary_unary_rpc_method_handler(answer)
        return None


@asynccontextmanager
async def kubelet(socket: Path) -> AsyncIterator[None]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Kubelet(),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=None)
        socket.unlink(missing_ok=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="koord-") as made:
        yield Path(made)


@pytest.fixture
async def channel(folder: Path, tmp_path: Path) -> AsyncIterator[Any]:
    """A client of the proxy."""
    pods = NodePodsInformer("n", tmp_path)
    allocated = json.dumps({"gpu": [{"minor": 0, "id": "GPU-0"}]})
    pod = kept_pod("train", uid="u", namespace="default", annotations={DEVICE_ALLOCATED: allocated})
    assert pods.receive(node_pods.encode(NodePods("n", 1, 1, pods=(pod,))))
    own = folder / "proxy"
    own.mkdir()
    (own / SOCKET).touch()  # left by an agent that was killed
    serving = asyncio.create_task(PodResourcesProxy(folder / "kubelet.sock", own, pods).run())
    async with grpc.aio.insecure_channel(f"unix:{own / SOCKET}") as client:
        await until(lambda: asyncio.sleep(0, stat.S_ISSOCK((own / SOCKET).stat().st_mode)), "socket of the proxy")
        yield client
    await cancel_and_wait(serving)
    assert not (own / SOCKET).exists()


async def listed(channel: Any) -> dict[str, list[str]]:
    found = ListPodResourcesResponse.FromString(await channel.unary_unary(LIST)(b""))
    return {each.resource_name: list(each.device_ids) for each in found.pod_resources[0].containers[0].devices}


async def code_of(channel: Any, method: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await channel.unary_unary(method)(b"")
    code: grpc.StatusCode = failed.value.code()
    return code


async def test_list_has_our_devices_and_everything_else_is_the_kubelets(channel: Any, folder: Path) -> None:
    async with kubelet(folder / "kubelet.sock"):
        assert await listed(channel) == {"nvidia.com/gpu": ["GPU-0"]}
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await channel.unary_unary(GET)(b"")
        assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.NOT_FOUND, "pod x not found")
        assert dict(failed.value.trailing_metadata())["k"] == "v"
        assert [each async for each in channel.unary_stream(WATCH)(b"3")] == [b"1", b"2", b"3"]
        assert await code_of(channel, "/v2.Other/Method") is grpc.StatusCode.UNIMPLEMENTED


async def test_without_a_kubelet_its_absence_is_the_error_and_it_is_found_when_it_is_back(
    channel: Any, folder: Path
) -> None:
    assert await code_of(channel, LIST) is grpc.StatusCode.UNAVAILABLE

    async def answered() -> bool:
        try:
            return await listed(channel) == {"nvidia.com/gpu": ["GPU-0"]}
        except grpc.aio.AioRpcError:
            return False

    for _ in range(2):
        async with kubelet(folder / "kubelet.sock"):
            await until(answered, "answer of the kubelet")
        assert await code_of(channel, LIST) is grpc.StatusCode.UNAVAILABLE


async def test_an_answer_that_cannot_be_decoded_passes_through(
    channel: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{__name__}.ANSWER", b"\xff\xff")
    async with kubelet(folder / "kubelet.sock"):
        assert await channel.unary_unary(LIST)(b"") == b"\xff\xff"
    assert any("passes through unchanged" in record.message for record in caplog.records)
