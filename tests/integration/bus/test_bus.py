"""The bus on a real NATS server that restarts, hangs and stops."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats
from cli.processes.free_ports import free_port
from shared.bus import Bus, NoResponse
from shared.bus.bus import UNSENT_BYTES
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
async def bus(server: EmbeddedNats) -> AsyncIterator[Bus]:
    started = Bus(server.url, name="test")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def other(server: EmbeddedNats) -> AsyncIterator[Bus]:
    started = Bus(server.url, name="other")
    await started.start()
    yield started
    await started.close()


class Stream:
    """Publishes numbers on a subject until it is stopped."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.number = 0
        self.refused = 0
        self._bus, self._subject = bus, subject
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.number += 1
            if not await self._bus.publish(self._subject, b"%d" % self.number):
                self.refused += 1
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        await cancel_and_wait(self._task)


async def test_published_messages_arrive_in_order(bus: Bus, other: Bus) -> None:
    received: list[bytes] = []
    await other.subscribe("koord.log.*", received.append)
    await until(lambda: other.connected)
    await asyncio.sleep(0.1)  # the subscription reaches the server on another connection than the messages
    for number in range(1000):
        assert await bus.publish("koord.log.cluster", b"%d" % number)
    await until(lambda: len(received) == 1000)
    assert received == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("how", ["restart", "hang"])
async def test_subscriptions_come_back_by_themselves_under_load(
    server: EmbeddedNats, bus: Bus, other: Bus, how: str
) -> None:
    received: list[int] = []
    await other.subscribe("koord.log.cluster", lambda data: received.append(int(data)))
    stream = Stream(bus, "koord.log.cluster")
    await until(lambda: len(received) > 100)
    if how == "restart":
        await server.restart()
    else:
        await server.suspend()
        await until(lambda: not bus.connected and not other.connected)
        await server.resume()
    fresh = stream.number
    await until(lambda: received[-1] > fresh + 100)
    await stream.stop()
    assert received == sorted(set(received)), "nothing comes twice or out of order"
    assert other.reconnects >= (how == "restart"), "a server that wakes in time keeps its connection"


async def test_a_subscription_made_while_the_server_is_away_works_when_it_comes_back(
    server: EmbeddedNats, bus: Bus, other: Bus
) -> None:
    await server.kill()
    await until(lambda: not bus.connected and not other.connected)
    await until(lambda: bus.unreachable and bus.unreachable.reason)
    received: list[bytes] = []
    await other.subscribe("koord.head.cluster", received.append)
    assert not await bus.publish("koord.head.cluster", b"lost")
    await server.start()
    stream = Stream(bus, "koord.head.cluster")
    await until(lambda: len(received) > 0)
    await until(lambda: bus.unreachable is None)
    await stream.stop()


async def test_a_bus_starts_without_a_server_and_finds_it_later(tmp_path: Path) -> None:
    server = EmbeddedNats(tmp_path, free_port())
    bus = Bus(server.url, name="early")
    await bus.start()
    assert not bus.connected
    away = bus.unreachable
    assert away
    assert away.server == f"NATS at {server.url}"
    assert not await bus.publish("koord.head.cluster", b"")
    await server.start()
    await until(lambda: bus.connected)
    assert bus.unreachable is None
    await bus.close()
    await server.stop()


async def test_a_hung_server_holds_up_no_publisher_and_no_memory(server: EmbeddedNats, bus: Bus) -> None:
    await server.suspend()
    message = bytes(512 * 1024)
    sent = 0
    ends = time.monotonic() + PATIENCE_S
    while bus.unsent == 0 and bus.connected and time.monotonic() < ends:
        sent += await bus.publish("koord.log.cluster", message)  # a publisher that is held up stays here for good
        await asyncio.sleep(0)
    assert sent * len(message) < UNSENT_BYTES + 32 * 1024 * 1024, "beyond what the sockets hold, publishing stops"
    await until(lambda: not bus.connected)
    assert not await bus.publish("koord.log.cluster", message)
    await server.resume()
    await until(lambda: bus.connected)
    assert await bus.publish("koord.log.cluster", message)


async def test_messages_that_are_not_consumed_in_time_are_dropped_and_counted(server: EmbeddedNats, bus: Bus) -> None:
    slow = Bus(server.url, name="slow", pending_messages=8)
    await slow.start()
    received: list[bytes] = []
    await slow.subscribe("koord.log.cluster", received.append)
    await asyncio.sleep(0.1)
    for number in range(2000):
        await bus.publish("koord.log.cluster", b"%d" % number)
    await until(lambda: slow.dropped > 0)
    await until(lambda: len(received) + slow.dropped == 2000)
    await slow.close()


async def test_a_process_that_did_not_run_for_a_while_keeps_its_connection(server: EmbeddedNats) -> None:
    halted = Bus(server.url, name="halted", echo_interval_s=0.05)
    await halted.start()
    await until(lambda: halted.connected)
    for _ in range(10):
        time.sleep(0.5)  # the event loop stands still, as on a machine that is overloaded
        await asyncio.sleep(0.3)
    assert halted.connected
    assert halted.reconnects == 0
    await halted.close()


async def test_a_callback_that_fails_stops_nothing(bus: Bus, other: Bus) -> None:
    received: list[bytes] = []

    def fails_once(data: bytes) -> None:
        received.append(data)
        if len(received) == 1:
            raise ValueError("the first message")

    await other.subscribe("koord.log.cluster", fails_once)
    stream = Stream(bus, "koord.log.cluster")
    await until(lambda: len(received) > 10)
    await stream.stop()


async def test_a_request_gets_a_response_from_one_of_the_replicas(server: EmbeddedNats, bus: Bus, other: Bus) -> None:
    requested: list[str] = []

    def named(name: str) -> Callable[[bytes], object]:
        async def answer(data: bytes) -> bytes:
            requested.append(name)
            return data.upper()

        return answer

    await bus.respond("koord.request.quota", named("bus"))  # type: ignore[arg-type]
    await other.respond("koord.request.quota", named("other"))  # type: ignore[arg-type]
    asker = Bus(server.url, name="asker")
    await asker.start()
    answers = [await asker.request("koord.request.quota", b"charge", deadline_s=PATIENCE_S) for _ in range(50)]
    assert answers == [b"CHARGE"] * 50
    assert len(requested) == 50
    await asker.close()


async def test_a_request_without_a_response_ends_at_its_deadline(server: EmbeddedNats, bus: Bus, other: Bus) -> None:
    began = time.monotonic()
    with pytest.raises(NoResponse, match=r"koord\.request\.nobody within 0\.3 s"):
        await bus.request("koord.request.nobody", b"", deadline_s=0.3)
    assert time.monotonic() - began >= 0.3

    async def never(_data: bytes) -> bytes:
        await asyncio.sleep(3600)
        return b""

    await other.respond("koord.request.silent", never)
    with pytest.raises(NoResponse):
        await bus.request("koord.request.silent", b"", deadline_s=0.3)
    await server.suspend()
    with pytest.raises(NoResponse):
        await bus.request("koord.request.silent", b"", deadline_s=0.3)
    await server.resume()


async def test_a_request_waits_for_a_service_that_is_starting(bus: Bus, other: Bus) -> None:
    async def answer(data: bytes) -> bytes:
        return data

    requested = asyncio.create_task(bus.request("koord.request.late", b"there?", deadline_s=PATIENCE_S))
    await asyncio.sleep(0.2)
    await other.respond("koord.request.late", answer)
    assert await requested == b"there?"


async def test_a_responder_that_fails_sends_no_response_and_the_next_request_gets_one(bus: Bus, other: Bus) -> None:
    async def answer(data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError(data)
        return data

    await other.respond("koord.request.some", answer)
    await until(lambda: other.connected)
    with pytest.raises(NoResponse):
        await bus.request("koord.request.some", b"bad", deadline_s=0.5)
    assert await bus.request("koord.request.some", b"good", deadline_s=PATIENCE_S) == b"good"


async def test_a_request_whose_server_ends_gets_no_response(server: EmbeddedNats, bus: Bus, other: Bus) -> None:
    requested = asyncio.Event()

    async def never(_data: bytes) -> bytes:
        requested.set()
        return await asyncio.Future[bytes]()

    await other.respond("koord.test.never", never)
    question = asyncio.create_task(bus.request("koord.test.never", b"?", deadline_s=5))
    await asyncio.wait_for(requested.wait(), PATIENCE_S)
    await server.kill()
    with pytest.raises(NoResponse):
        await question
