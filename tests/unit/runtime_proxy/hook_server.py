"""A hook server whose answers a test decides, on a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from shared.runtime_hooks.messages import (
    POD_STAGES,
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
    method_of,
)
from shared.runtime_hooks.stages import STAGES

Answer = Callable[[Any], Awaitable[Any]]


class HookServer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Answers with a copy of the request, as upstream's does, changed by the test.

    Attributes:
        called: stage and request of each call.
        answers: by stage, from a request to a message or to bytes.
    """

    def __init__(self) -> None:
        self.called: list[tuple[str, Any]] = []
        self.answers: dict[str, Answer] = {}

    @property
    def stages(self) -> list[str]:
        return [stage for stage, _ in self.called]

    def service(self, details: Any) -> Any:
        stage = next((each for each in STAGES if method_of(each) == details.method), None)
        if stage is None:
            return None

        async def answer(data: bytes, context: Any) -> bytes:
            request = (PodSandboxHookRequest if stage in POD_STAGES else ContainerResourceHookRequest).FromString(data)
            self.called.append((stage, request))
            found = await self.answers.get(stage, copied)(request)
            return found if isinstance(found, bytes) else bytes(found.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answer)


async def copied(request: Any) -> Any:
    if "labels" in request.DESCRIPTOR.fields_by_name:
        return PodSandboxHookResponse(
            labels=dict(request.labels), annotations=dict(request.annotations), cgroup_parent=request.cgroup_parent
        )
    return ContainerResourceHookResponse(
        container_annotations=dict(request.container_annotations),
        container_resources=request.container_resources,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=dict(request.container_envs),
    )


def changed(change: Callable[[Any], object]) -> Answer:
    """Returns an answer that is a copy of its request, with a change."""

    async def answer(request: Any) -> Any:
        found = await copied(request)
        change(found)
        return found

    return answer


async def hanging(_: Any) -> Any:
    await asyncio.sleep(60)


async def undecodable(_: Any) -> Any:
    return b"\xff\xff\xff"


@asynccontextmanager
async def serving(server: HookServer, socket: Path) -> AsyncIterator[None]:
    running = grpc.aio.server()
    running.add_generic_rpc_handlers((server,))
    running.add_insecure_port(f"unix:{socket}")
    await running.start()
    try:
        yield
    finally:
        await running.stop(grace=None)
        socket.unlink(missing_ok=True)


def register(folder: Path, socket: Path, *stages: str, policy: str = "Ignore", name: str = "test.json") -> None:
    folder.mkdir(exist_ok=True)
    text = {"remote-endpoint": str(socket), "failure-policy": policy, "runtime-hooks": list(stages or STAGES)}
    (folder / name).write_text(json.dumps(text))
