"""Streams on a real NATS server that restarts, is wiped and has other publishers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cli.embedded import EmbeddedNats
from shared.bus import Bus
from shared.bus.jetstream import BadSubject, Outgoing, StreamConfig, StreamRefused, Streams, StreamsUnreachable
from tests.support.waiting import until

CONFIG = StreamConfig(
    name="EVENTS", subjects=("koord.event.cluster.>",), max_age=3_600_000_000_000, max_bytes=1_000_000
)


@pytest.fixture
async def bus(server: EmbeddedNats) -> AsyncIterator[Bus]:
    started = Bus(server.url, name="test")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
def streams(bus: Bus) -> Streams:
    return Streams(bus)


def numbered(first: int, upto: int) -> list[Outgoing]:
    return [Outgoing(f"koord.event.cluster.{n % 3}", b"%d" % n, f"cluster/{n}") for n in range(first, upto + 1)]


async def test_a_stream_is_created_once_and_gets_new_bounds(streams: Streams) -> None:
    assert await streams.state("EVENTS") is None
    assert (await streams.ensure(CONFIG)).messages == 0
    await streams.publish("koord.event.cluster.a", b"kept")
    larger = StreamConfig(name="EVENTS", subjects=CONFIG.subjects, max_age=CONFIG.max_age, max_bytes=2_000_000)
    assert (await streams.ensure(larger)).messages == 1
    assert (await streams.ensure(larger)).messages == 1
    await streams.delete("EVENTS")
    await streams.delete("EVENTS")
    assert await streams.state("EVENTS") is None


async def test_the_last_message_of_a_stream_and_of_a_subject_is_returned(streams: Streams) -> None:
    await streams.ensure(CONFIG)
    assert await streams.last("EVENTS") is None
    await streams.publish_all(numbered(1, 600))
    last = await streams.last("EVENTS", "koord.event.cluster.1")
    assert last is not None
    assert (last.data, last.headers["Nats-Msg-Id"]) == (b"598", "cluster/598")
    assert (await streams.get("EVENTS", last.seq)) == last
    await streams.purge("EVENTS", "koord.event.cluster.1")
    assert await streams.last("EVENTS", "koord.event.cluster.1") is None
    assert await streams.get("EVENTS", last.seq) is None


async def test_a_chain_is_stored_in_its_order_with_several_links_in_flight(streams: Streams) -> None:
    await streams.ensure(CONFIG)
    first = await streams.publish_chain(numbered(1, 100), last_seq=0)
    second = await streams.publish_chain(numbered(101, 200), last_id="cluster/100")
    assert (await first, await second) == (100, 200)
    for n in (1, 100, 101, 200):
        stored = await streams.get("EVENTS", n)
        assert stored is not None
        assert stored.data == b"%d" % n


async def test_a_gap_and_a_second_publisher_are_rejected(streams: Streams) -> None:
    await streams.ensure(CONFIG)
    await (await streams.publish_chain(numbered(1, 10), last_seq=0))
    with pytest.raises(StreamRefused, match="wrong last"):
        await (await streams.publish_chain(numbered(12, 20), last_id="cluster/11"))
    with pytest.raises(StreamRefused, match="wrong last"):
        await (await streams.publish_chain(numbered(11, 20), last_seq=9))
    await streams.publish("koord.event.cluster.alien", b"not ours")
    with pytest.raises(StreamRefused, match="wrong last"):
        await (await streams.publish_chain(numbered(11, 20), last_id="cluster/10"))
    state = await streams.state("EVENTS")
    assert state is not None
    assert state.messages == 11


async def test_a_purged_stream_takes_the_same_messages_again(streams: Streams) -> None:
    await streams.ensure(CONFIG)
    await (await streams.publish_chain(numbered(1, 10), last_seq=0))
    await streams.purge("EVENTS")
    with pytest.raises(StreamRefused, match="has stored that id"):
        await (await streams.publish_chain(numbered(10, 10), last_seq=10))
    await asyncio.sleep(2 * CONFIG.duplicate_window / 1e9)
    await (await streams.publish_chain(numbered(1, 10), last_seq=10))
    state = await streams.state("EVENTS")
    assert state is not None
    assert (state.messages, state.first_seq, state.last_seq) == (10, 11, 20)


async def test_a_chain_continues_after_the_server_was_killed(server: EmbeddedNats, bus: Bus, streams: Streams) -> None:
    await streams.ensure(CONFIG)
    await (await streams.publish_chain(numbered(1, 10), last_seq=0))
    await server.kill()
    await until(lambda: bus.connection is None)
    with pytest.raises(StreamsUnreachable):
        await (await streams.publish_chain(numbered(11, 20), last_id="cluster/10"))
    with pytest.raises(StreamsUnreachable):
        await streams.state("EVENTS")
    await server.start()
    await until(lambda: bus.connection is not None)
    last = await streams.last("EVENTS")
    assert last is not None
    assert last.data == b"10"
    await (await streams.publish_chain(numbered(11, 20), last_seq=last.seq))


async def test_a_chain_without_a_stream_is_rejected(streams: Streams) -> None:
    with pytest.raises(StreamRefused, match="no such stream"):
        await (await streams.publish_chain(numbered(1, 3), last_seq=0))


async def test_a_message_that_would_be_read_as_a_command_or_is_too_large_is_not_sent(streams: Streams) -> None:
    await streams.ensure(CONFIG)
    for message in (
        Outgoing("koord.event.cluster.a\r\nPUB x 0", b"", "cluster/1"),
        Outgoing("koord.event.cluster.a b", b"", "cluster/1"),
        Outgoing("koord.event.cluster.a", b"", "cluster/1\r\nX: y"),
    ):
        with pytest.raises(BadSubject):
            await (await streams.publish_chain([message], last_seq=0))
    with pytest.raises(StreamRefused, match="larger than the server takes"):
        await (await streams.publish_chain([Outgoing("koord.event.cluster.a", b"x" * 2**20, "cluster/1")], last_seq=0))
    await (await streams.publish_chain(numbered(1, 3), last_seq=0))
