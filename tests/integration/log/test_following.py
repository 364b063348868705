"""Appended events reach a follower: over the bus in order, from Postgres where the bus has a gap, and never twice."""

import asyncio

import asyncpg
import msgspec
import pytest

from cli.embedded import EmbeddedNats
from shared.bus import Bus, server_check
from shared.bus.login import Login
from shared.events import Draft, RecordedEvent
from shared.log import announcements, follower
from shared.log.announcements import Batch, Beacon
from shared.log.position import Position
from tests.support.copier_service import Passed, Seen
from tests.support.log_system import Following, Writer
from tests.support.waiting import until


def seqs(following: Following) -> list[int]:
    return list(following.state.seen)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that reads nothing from Postgres because a machine is slow."""
    monkeypatch.setattr(follower, "GRACE_S", 600)


async def test_appended_events_arrive_over_the_bus_and_are_folded_in_order(
    patient: None, writer: Writer, following: Following
) -> None:
    await following.start()
    appended = await writer.see(300, size=7)
    await until(lambda: len(following.state.seen) == 300)
    assert seqs(following) == appended == list(range(2, 302)), "seq 1 is WriterStarted, a type that is not declared"
    assert following.follower.positions["source"] == writer.log.head
    assert following.follower.repairs == 0, "every event came over the bus"
    assert following.follower.refused == {}
    assert following.follower.lag == 0


async def test_a_follower_that_starts_later_reads_the_tail_from_postgres(writer: Writer, following: Following) -> None:
    appended = await writer.see(50)
    await following.start()
    assert seqs(following) == appended
    assert following.follower.positions["source"] == writer.log.head


async def test_events_appended_while_a_follower_starts_are_neither_lost_nor_doubled(
    writer: Writer, following: Following
) -> None:
    starting = asyncio.create_task(following.start())
    appended = await writer.see(400, size=2)
    await starting
    await until(lambda: len(following.state.seen) == 400)
    assert seqs(following) == appended


async def test_a_batch_the_bus_loses_is_read_from_postgres(
    writer: Writer, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    await following.start()
    first = await writer.see(3, size=3)
    await until(lambda: len(following.state.seen) == 3)
    with monkeypatch.context() as silent:
        silent.setattr(announcements, "split", lambda _batch: iter(()))
        lost = await writer.see(5, size=5)
    later = await writer.see(2, size=2)
    await until(lambda: len(following.state.seen) == 10)
    assert seqs(following) == [*first, *lost, *later]
    assert following.follower.repairs >= 1


async def test_the_last_batch_lost_is_noticed_by_the_beacon(
    writer: Writer, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    await following.start()
    monkeypatch.setattr(announcements, "split", lambda _batch: iter(()))
    lost = await writer.see(5, size=5)
    await until(lambda: seqs(following) == lost)


async def test_without_a_bus_a_follower_polls(url: str, writer: Writer) -> None:
    following = await Following(url, bus=None).start()
    appended = await writer.see(20, size=4)
    await until(lambda: seqs(following) == appended)
    await following.close()


class FakeBus:
    """Stands in for a bus: the test delivers the messages."""

    def __init__(self) -> None:
        self.received: dict[str, object] = {}

    async def subscribe(self, subject: str, received: object) -> None:
        self.received[subject] = received

    def deliver(self, message: Batch | Beacon) -> None:
        subject = announcements.batch_subject if isinstance(message, Batch) else announcements.beacon_subject
        self.receive(subject(message.context), announcements.encode(message))

    def receive(self, subject: str, data: bytes) -> None:
        self.received[subject](data)  # type: ignore[operator]


class RecordingBus:
    """Stands in for the writer's bus: keeps the announced batches."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def publish(self, subject: str, data: bytes) -> bool:
        if subject.startswith("koord.log."):
            self.batches.append(announcements.decode_batch(data))
        return True


async def test_a_repeat_is_dropped_only_with_the_same_digest(url: str) -> None:
    kept, subscriptions = RecordingBus(), FakeBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    following = await Following(url, subscriptions).start()
    await writer.see(6, size=2)
    for batch in kept.batches:
        subscriptions.deliver(batch)
    await until(lambda: len(following.state.seen) == 6)

    def reads() -> list[str]:
        return [task.get_name() for task in following.follower._tasks._tasks]

    await until(lambda: reads() == ["follower"])
    for batch in kept.batches:
        subscriptions.deliver(batch)
    assert len(following.state.seen) == 6
    assert reads() == ["follower"], "a repeat with the same digest costs nothing: no read is under way or planned"

    last = kept.batches[-1]
    entries = [*last.entries[:-1], msgspec.structs.replace(last.entries[-1], digest=bytes(32))]
    subscriptions.deliver(msgspec.structs.replace(last, entries=entries))
    await until(lambda: following.follower.repairs == 1)
    await until(lambda: following.follower.lag == 0)
    assert following.follower.reloads == 0, "the log agrees with what was folded: the message was wrong"
    subscriptions.deliver(msgspec.structs.replace(last, first=last.last + 1, previous=bytes(32)))
    await until(lambda: following.follower.repairs == 2)
    assert following.follower.positions["source"] == writer.log.head, (
        "an event that does not continue our chain is not folded"
    )
    await following.close()
    await writer.close()


async def test_records_from_a_superseded_writer_are_ignored(url: str) -> None:
    kept, subscriptions = RecordingBus(), FakeBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    following = await Following(url, subscriptions).start()
    await writer.see(1)
    subscriptions.deliver(kept.batches[-1])
    late = msgspec.structs.replace(kept.batches[-1], epoch=writer.log.epoch - 1, first=writer.log.head.seq + 1)
    subscriptions.deliver(late)
    subscriptions.deliver(Beacon("source", writer.log.epoch - 1, 999, bytes(32)))
    await until(lambda: following.follower.positions["source"] == writer.log.head)
    assert following.follower.lag == 0
    await following.close()
    await writer.close()


async def test_an_event_larger_than_a_message_is_announced_by_its_seq_alone(
    writer: Writer, following: Following
) -> None:
    await following.start()
    (before,) = await writer.append(Seen(name="before"))
    (large,) = await writer.append(Seen(name="large", text="x" * (announcements.LARGEST + 1)))
    (after,) = await writer.append(Seen(name="after"))
    await until(lambda: seqs(following) == [before, large, after])
    assert following.follower.repairs >= 1


async def test_a_large_append_is_announced_in_parts(url: str, follower_bus: Bus) -> None:
    kept = RecordingBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    appended = await writer.append(*(Seen(name=f"n{i}", text="x" * 1000) for i in range(2000)))
    parts = kept.batches[1:]
    assert len(parts) > 3
    assert all(len(announcements.encode(part)) <= announcements.LARGEST for part in parts)
    subscriptions = FakeBus()
    following = await Following(url, subscriptions, reads={"source": (Seen,)}).start()
    assert following.follower.positions["source"].seq == 2001
    from_bus = await Following(url, FakeBus(), service="other").start()
    assert seqs(from_bus) == appended
    assert [entry.digest for part in parts for entry in part.entries][-1] == writer.log.head.digest
    previous = kept.batches[0].entries[-1].digest
    for part in parts:
        assert part.previous == previous
        previous = part.entries[-1].digest
    for one in (following, from_bus):
        await one.close()
    await writer.close()


async def test_small_events_are_announced_within_the_servers_limit(url: str, server: EmbeddedNats) -> None:
    """The overhead of each event counts, too."""
    kept = RecordingBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    await writer.append(*(Seen(name="n") for _ in range(15_000)))
    sizes = [len(announcements.encode(part)) for part in kept.batches]
    assert len(sizes) > 2
    assert max(sizes) <= announcements.LARGEST <= (await server_check.look(Login(server.url))).max_payload
    await writer.close()


async def test_types_that_are_not_declared_are_skipped(writer: Writer, following: Following) -> None:
    await following.start()
    await writer.append(Passed(name="a"), Seen(name="b"), Passed(name="c"))
    await until(lambda: following.follower.positions["source"] == writer.log.head)
    assert list(following.state.seen.values()) == ["b"]
    read = await Following(following.database.dsn).start()
    assert read.state.seen == following.state.seen
    assert read.follower.positions["source"] == writer.log.head
    await read.close()


async def test_the_writers_own_state_is_folded_before_append_returns(
    patient: None, url: str, bus: Bus, follower_bus: Bus
) -> None:
    following = await Following(url, follower_bus, reads={"source": (Seen,)}).start()
    following.follower._own, following.follower._own_kinds = "source", frozenset((Seen,))
    writer = Writer(url, bus)
    writer.log._committed = following.follower.own
    announced: list[bytes] = []
    await follower_bus.subscribe(
        announcements.batch_subject("source"), announced.append
    )  # subscribed after the follower, so the follower gets each message first
    await writer.start()
    for _ in range(50):
        (seq,) = await writer.append(Seen(name="own"))
        assert seqs(following)[-1] == seq
    await until(lambda: len(announced) == 51, "each append's announcement, a repeat")
    assert len(following.state.seen) == 50
    assert following.follower.repairs == 0
    assert following.follower.reloads == 0
    await writer.close()
    await following.close()


async def test_an_append_of_nothing_commits_nothing(writer: Writer) -> None:
    before = writer.log.head
    assert await writer.log.append([], now_ns=1, seen={}) == []
    assert writer.log.head == before


async def test_the_first_event_of_an_append_records_the_basis_of_the_decision(
    writer: Writer, following: Following
) -> None:
    await writer.log.append(
        [Draft(Seen(name="a")), Draft(Seen(name="b"))], now_ns=1_234_567_891, seen={"copy": 7, "b": 1}, config="c0ffee"
    )
    rows = [row async for row in following.reader.rows(context="source", after=1)]
    first, second = (msgspec.json.decode(row.data, type=Seen) for row in rows)
    assert (first.seen, first.now_ns, first.config) == ({"b": 1, "copy": 7}, 1_234_567_891, "c0ffee")
    assert (second.seen, second.now_ns, second.config) == (None, None, None)
    assert await following.reader.last_seen("source") == {"b": 1, "copy": 7}
    assert rows[0].at.timestamp() == 1.234567, "whole microseconds"


async def test_bus_and_postgres_bring_the_same_records(url: str, writer: Writer, follower_bus: Bus) -> None:
    class Keep:
        SCHEMA = 1

        def __init__(self) -> None:
            self.positions: dict[str, int] = {}
            self.records: list[RecordedEvent] = []

        def apply(self, record: RecordedEvent) -> None:
            self.records.append(record)

        def encode(self) -> bytes:
            return b""

        def restore(self, data: bytes) -> None: ...

    received = await Following(url, follower_bus, new_state=Keep, reads={"source": (Seen,)}).start()
    await writer.see(30, size=4, text="é…")
    await until(lambda: len(received.state.records) == 30)
    read = await Following(url, None, new_state=Keep, reads={"source": (Seen,)}).start()
    assert received.state.records == read.state.records
    assert received.follower.positions == read.follower.positions == {"source": Position(31, writer.log.head.digest)}
    await received.close()
    await read.close()


async def test_a_hook_gets_each_event_with_the_state_just_before_it_from_bus_and_postgres(
    url: str, writer: Writer, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    await following.start()
    looked: list[tuple[int, int]] = []  # seq of the event, how many were folded before it
    following.follower.before_fold(lambda record: looked.append((record.seq, len(following.state.seen))))
    received = await writer.see(300, size=150)  # batches larger than the slice that is folded at once with a hook
    await until(lambda: len(following.state.seen) == 300)
    with monkeypatch.context() as silent:
        silent.setattr(announcements, "split", lambda _batch: iter(()))
        await writer.see(150, size=150)
    await writer.see(1)
    await until(lambda: len(following.state.seen) == 451)  # the middle was read from Postgres
    assert looked == [(seq, before) for before, seq in enumerate(range(received[0], received[0] + 451))]
    following.follower.before_fold(None)
    await writer.see(5)
    await until(lambda: len(following.state.seen) == 456)
    assert len(looked) == 451


async def test_an_error_in_a_hook_stops_the_follower_and_parks_nothing(
    url: str, writer: Writer, following: Following
) -> None:
    await following.start()

    def look(record: RecordedEvent) -> None:
        raise RuntimeError("cannot look")

    following.follower.before_fold(look)
    await writer.see(1)
    with pytest.raises(RuntimeError, match="cannot look"):
        await asyncio.wait_for(following.follower.failed, 240)
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("select count(*) from parked") == 0
    finally:
        await connection.close()
