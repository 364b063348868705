"""The agent's connection to a runtime's socket: registration, refusals, and a runtime that goes away.

What a real containerd does with it is in tests/node.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.nri import client, messages
from services.node_agent.nri.client import NriClient
from services.node_agent.nri.frames import (
    PLUGIN_CONNECTION,
    REQUEST,
    RESPONSE,
    RUNTIME_CONNECTION,
    Frame,
    FrameReader,
    encode,
)
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.prometheus.exposition import TEXTS
from services.node_agent.runtime_hooks.hook_records import HookRecords
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.waiting import until


class Peer:
    """The runtime's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self._frames, self._waiting = reader, writer, FrameReader(), list[Frame]()

    async def frame(self) -> Frame:
        while not self._waiting:
            self._waiting += self._frames.feed(await self._reader.readexactly(1))
        return self._waiting.pop(0)

    async def registered(self, status: dict[str, object] | None = None) -> object:
        """Takes the registration and answers it; returns the request."""
        frame = await self.frame()
        assert (frame.connection, frame.kind) == (RUNTIME_CONNECTION, REQUEST)
        call = messages.Request.FromString(frame.data)
        assert (call.service, call.method) == (messages.RUNTIME, "RegisterPlugin")
        response = messages.Response(status=status).SerializeToString()
        self.writer.write(encode(frame._replace(kind=RESPONSE, data=response)))
        return messages.RegisterPluginRequest.FromString(call.payload)

    async def call(self, method: str, payload: bytes = b"", stream: int = 1) -> Any:
        request = messages.Request(service=messages.PLUGIN, method=method, payload=payload).SerializeToString()
        self.writer.write(encode(Frame(PLUGIN_CONNECTION, stream, REQUEST, request)))
        frame = await self.frame()
        assert (frame.connection, frame.stream, frame.kind) == (PLUGIN_CONNECTION, stream, RESPONSE)
        return messages.Response.FromString(frame.data)


@asynccontextmanager
async def runtime(socket: Path) -> AsyncIterator[asyncio.Queue[Peer]]:
    """Listens; yields the connections."""
    peers: asyncio.Queue[Peer] = asyncio.Queue()
    open_: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.append(writer)
        peers.put_nowait(Peer(reader, writer))

    server = await asyncio.start_unix_server(accept, str(socket))
    try:
        yield peers
    finally:
        for writer in open_:
            writer.close()
        server.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="koord-") as made:
        yield Path(made)


@pytest.fixture
async def agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NriClient]:
    monkeypatch.setattr(client, "LEAST_BACKOFF_S", 0.01)
    found = NriClient(
        folder / "nri.sock", NriPlugin({}, lambda _: None, stop_at_failure=False, records=HookRecords(None, 0))
    )
    task = asyncio.create_task(found.run())
    yield found
    await cancel_and_wait(task)


def connected(agent: NriClient) -> float:
    return next(value for name, _, value in agent.gauges() if name == "koord_node_agent_nri_connected")


async def test_each_of_its_numbers_has_a_text_for_prometheus(agent: NriClient) -> None:
    assert {name for name, _, _ in agent.gauges()} <= TEXTS.keys()


async def test_it_registers_and_serves_requests_until_the_runtime_ends_and_then_the_next_one(
    agent: NriClient, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        async with runtime(folder / "nri.sock") as peers:
            peer = await peers.get()
            registration = await peer.registered()
            assert "koordlet_nri" in str(registration)
            await peer.call("Configure")
            assert connected(agent) == 0, "the runtime counts it from its synchronization on"
            assert not (await peer.call("Synchronize", stream=3)).status.code
            assert connected(agent) == 1
            status = (await peer.call("StopContainer", stream=5)).status
            assert (status.code, "is not served" in status.message) == (client.UNIMPLEMENTED, True)
            peer.writer.close()
            await until(lambda: asyncio.sleep(0, connected(agent) == 0), "lost connection")
        (folder / "nri.sock").unlink(missing_ok=True)
    assert any("no connection to the container runtime" in record.message for record in caplog.records)


async def test_a_refused_registration_is_logged_with_the_runtimes_reason_and_tried_again(
    agent: NriClient, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with runtime(folder / "nri.sock") as peers:
        await (await peers.get()).registered({"code": 2, "message": "plugin index 00 is taken"})
        await (await peers.get()).registered()
    whys = [str(getattr(record, "why", "")) for record in caplog.records]
    assert "the container runtime does not accept plugin 00-koordlet_nri: plugin index 00 is taken" in whys


async def test_bytes_that_are_no_frames_end_the_connection(
    agent: NriClient, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with runtime(folder / "nri.sock") as peers:
        peer = await peers.get()
        peer.writer.write(b"\xff" * 64)
        await peers.get()
    assert any("are allowed" in str(getattr(record, "why", "")) for record in caplog.records)


async def test_of_several_connections_only_the_last_one_looks_for_repairs_and_none_does_after_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LEAST_BACKOFF_S", 0.01)
    looking: set[asyncio.Task[Any] | None] = set()

    def confirm() -> bool:
        looking.add(asyncio.current_task())
        return False

    plugin = NriPlugin({}, lambda _: None, stop_at_failure=False, records=HookRecords(None, 0))
    running = asyncio.create_task(NriClient(folder / "nri.sock", plugin, confirm).run())
    async with runtime(folder / "nri.sock") as peers:
        for number in (1, 2):
            peer = await peers.get()
            await peer.registered()
            await peer.call("Synchronize")
            await until(lambda number=number: asyncio.sleep(0, len(looking) == number), "a look for repairs")  # type: ignore[misc]
            assert sum(task is not None and not task.done() for task in looking) == 1
            peer.writer.close()
        await cancel_and_wait(running)
        await asyncio.sleep(0)
    assert all(task is not None and task.done() for task in looking)


async def test_the_runtime_gets_repairs_only_once_their_records_are_kept(
    agent: NriClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> None:
        raise OSError

    async with runtime(folder / "nri.sock") as peers:
        peer = await peers.get()
        await peer.registered()
        await peer.call("Configure")
        monkeypatch.setattr(agent._plugin, "flush", ended)
        with pytest.raises(asyncio.IncompleteReadError):
            await peer.call("Synchronize")
