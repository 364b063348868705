"""Calls of hook servers on real sockets: which one is called, and what its failure means."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.hook_client import MAX_CHANNELS, HookClient, HookRefused, SkippedPods
from services.runtime_proxy.known_containers import pod_of
from services.runtime_proxy.registered_servers import RegisteredServers
from services.runtime_proxy.settings import BadProxyOption, options_of
from shared.runtime_hooks.stages import AFTER_STOP_POD_SANDBOX, RUN_POD_SANDBOX
from tests.unit.runtime_proxy.hook_server import HookServer, changed, hanging, register, serving


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="koord-") as made:  # short: that of a socket has at most 107 bytes
        yield Path(made)


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[HookClient]:
    found = HookClient(RegisteredServers(folder / "registered"), 0.3, SkippedPods("skip", "true"))
    yield found
    await found.close()


def pod() -> Any:
    return pod_of(cri.RunPodSandboxRequest(config={"metadata": {"name": "web", "namespace": "default"}}).config)


async def test_the_first_server_that_can_be_reached_is_called(folder: Path, client: HookClient) -> None:
    registered, first, second = folder / "registered", HookServer(), HookServer()
    assert not await client.before(RUN_POD_SANDBOX, pod())  # nothing is registered
    register(registered, folder / "1.sock", name="1.json")
    register(registered, folder / "2.sock", name="2.json", policy="Fail")
    second.answers[RUN_POD_SANDBOX] = changed(lambda answer: answer.labels.update(by="second"))
    async with serving(second, folder / "2.sock"):
        subject = pod()
        assert await client.before(RUN_POD_SANDBOX, subject)
        assert subject.labels["by"] == "second"
        async with serving(first, folder / "1.sock"):
            await client.after(AFTER_STOP_POD_SANDBOX, subject)
            await client.before(RUN_POD_SANDBOX, pod())
    assert (first.stages, second.stages) == ([AFTER_STOP_POD_SANDBOX, RUN_POD_SANDBOX], [RUN_POD_SANDBOX])
    with pytest.raises(
        HookRefused, match=r"PreRunPodSandbox of pod default/web is refused: .*2.sock.*cannot be reached"
    ):
        await client.before(RUN_POD_SANDBOX, pod())
    assert "2.sock, whose failure-policy is Fail" in await client.after(AFTER_STOP_POD_SANDBOX, pod())
    register(registered, folder / "2.sock", name="2.json")
    assert not await client.after(AFTER_STOP_POD_SANDBOX, pod())  # by its policy it changes nothing


async def test_a_server_that_hangs_is_not_replaced_by_the_next(folder: Path, client: HookClient) -> None:
    server = HookServer()
    server.answers[RUN_POD_SANDBOX] = hanging
    register(folder / "registered", folder / "1.sock", name="1.json")
    register(folder / "registered", folder / "2.sock", name="2.json", policy="Fail")
    async with serving(server, folder / "1.sock"):
        assert not await client.before(RUN_POD_SANDBOX, pod())


async def test_connections_to_servers_of_the_past_are_closed(folder: Path, client: HookClient) -> None:
    async with AsyncExitStack() as servers:
        for number in range(MAX_CHANNELS + 3):
            socket = folder / f"{number}.sock"
            await servers.enter_async_context(serving(HookServer(), socket))
            register(folder / "registered", socket, name="one.json")
            assert await client.before(RUN_POD_SANDBOX, pod())
    assert len(client._channels) == MAX_CHANNELS
    assert not await client.before(RUN_POD_SANDBOX, pod())  # the servers have ended: the connection is not kept
    assert len(client._channels) == MAX_CHANNELS - 1


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"backend-runtime-mode": "crio"}, "--backend-runtime-mode is 'crio'; give Containerd or Docker"),
        (
            {"koord-runtimeproxy-endpoint": "p.sock"},
            "--koord-runtimeproxy-endpoint is 'p.sock'; give the absolute path",
        ),
        ({"koord-runtimeproxy-endpoint": "/s", "remote-runtime-service-endpoint": "unix:///s"}, "are both /s"),
    ],
)
def test_an_invalid_flag_is_named(flags: dict[str, str], error: str) -> None:
    with pytest.raises(BadProxyOption, match=error):
        options_of(flags)
