"""An event that cannot be decoded or folded stops its follower with an error that names it, until a person skips it.
Old versions are read.
"""

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import asyncpg
import pytest

from shared.bus import Bus
from shared.events import UPCASTERS, Event, Upcaster
from shared.log.codec import Unreadable
from shared.log.database import Database
from shared.log.follower_failure import Parked
from shared.log.service_store import NoSuchEvent, ServiceStore
from shared.log.snapshot import pack
from shared.runtime.rebuild import rebuild
from tests.support.copier_service import SERVICE, CopyState, Seen
from tests.support.log_system import Following, Writer
from tests.support.waiting import until


class UndecodableSeen(Event, frozen=True, tag="koord.source.Seen.v1"):
    """An event with the stored name of Seen and data that cannot be decoded as Seen."""

    KEY: ClassVar[str] = "name"

    name: str
    number: str


@pytest.fixture
async def registry(url: str) -> AsyncIterator[ServiceStore]:
    database = Database(url)
    yield ServiceStore(database, "test")
    await database.close()


async def parked(url: str) -> list[tuple[str, str, int]]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("select service, context, seq from parked")
    await connection.close()
    return [tuple(row) for row in rows]


BAD: dict[str, Event] = {
    "decoded": UndecodableSeen(name="bad", number="three"),
    "folded": Seen(name="unfoldable"),
}


@pytest.mark.parametrize("cannot_be", BAD)
async def test_an_event_from_the_bus_that_cannot_be_read_stops_the_follower_and_is_named(
    url: str, writer: Writer, following: Following, cannot_be: str
) -> None:
    await following.start()
    (before,) = await writer.append(Seen(name="before"))
    await until(lambda: list(following.state.seen) == [before])
    seqs = await writer.append(Seen(name="good"), BAD[cannot_be], Seen(name="after"))
    await until(following.follower.failed.done)
    with pytest.raises(Parked, match=f"test cannot fold source/{seqs[1]}.* koord events skip test source/{seqs[1]}"):
        await following.follower.failed
    assert await parked(url) == [("test", "source", seqs[1])], "the row is written before the failure is reported"
    await writer.append(Seen(name="later"))
    await until(lambda: following.follower.positions["source"].seq < seqs[1])
    assert "later" not in following.state.seen.values(), "a follower that has failed folds no more"


@pytest.mark.parametrize("cannot_be", BAD)
async def test_an_event_that_cannot_be_read_stops_a_start_until_it_is_skipped(
    url: str, writer: Writer, registry: ServiceStore, cannot_be: str, follower_bus: Bus
) -> None:
    good, bad, after = await writer.append(Seen(name="good"), BAD[cannot_be], Seen(name="after"))
    for _ in range(2):
        following = Following(url, None)
        with pytest.raises(Parked, match=f"source/{bad}"):
            await following.start()
        await following.close()
    assert await parked(url) == [("test", "source", bad)]

    with pytest.raises(NoSuchEvent, match="source/99"):
        await registry.skip("source", 99, reason="mistyped", by="someone")
    await registry.skip("source", bad, reason="written by a faulty release", by="someone")
    assert await parked(url) == []
    following = await Following(url, follower_bus).start()
    assert list(following.state.seen) == [good, after]
    assert following.follower.positions["source"] == writer.log.head
    (again,) = await writer.append(Seen(name="again"))
    await until(lambda: list(following.state.seen) == [good, after, again])
    await following.close()


async def test_a_skipped_event_from_the_bus_is_not_folded(
    url: str, writer: Writer, registry: ServiceStore, following: Following
) -> None:
    (first,) = await writer.append(Seen(name="first"))
    connection = await asyncpg.connect(url)
    for seq in (first + 1, first + 2):
        await connection.execute("insert into skips values ('test', 'source', $1, 'known to come', 'someone')", seq)
    await connection.close()
    await following.start()
    *_, last = await writer.append(BAD["decoded"], BAD["folded"], Seen(name="last"))
    await until(lambda: list(following.state.seen) == [first, last])
    assert not following.follower.failed.done()


async def test_a_rebuild_skips_a_skipped_event_and_names_an_unreadable_one(url: str, writer: Writer) -> None:
    database = Database(url)
    copier = ServiceStore(database, SERVICE.name)
    await writer.append(Seen(name="first"))
    before = await Following(url, None, service="copier").start()
    await copier.write_snapshot(before.follower.positions, 1, "0", *_packed(before.state))
    bad, good = await writer.append(Seen(name="unfoldable"), Seen(name="good"))

    await copier.skip("source", bad, reason="a test", by="someone")
    after = await Following(url, None, service="copier").start()
    await copier.write_snapshot(after.follower.positions, 1, "0", *_packed(after.state))
    assert good in after.state.seen
    found = await rebuild(SERVICE, database)
    assert (found.upto is not None, found.equal) == (True, True)

    connection = await asyncpg.connect(url)
    await connection.execute("delete from skips")
    await connection.close()
    with pytest.raises(Unreadable, match=f"source/{bad}"):
        await rebuild(SERVICE, database)
    for one in (before, after, database):
        await one.close()


async def test_a_skip_drops_the_snapshots_in_which_the_event_is_folded(
    url: str, writer: Writer, registry: ServiceStore, following: Following
) -> None:
    await following.start()
    early = following.follower.positions
    await registry.write_snapshot(early, 1, "0", *_packed(following.state))
    kept, folded = await writer.append(Seen(name="kept"), Seen(name="folded"))
    await until(lambda: list(following.state.seen) == [kept, folded])
    await registry.write_snapshot(following.follower.positions, 1, "0", *_packed(following.state))
    await registry.skip("source", folded, reason="it was a mistake", by="someone")
    assert [one.positions for one in await registry.snapshots(1)] == [early]
    later = await Following(url, None).start()
    assert list(later.state.seen) == [kept]
    await later.close()


def _packed(state: CopyState) -> tuple[bytes, bytes]:
    packed = pack(state)
    return packed[32:], packed[:32]


class Met(Event, frozen=True, tag="koord.source.Met.v2"):
    """Version 2: `name` became `whom`, and `times` is new."""

    KEY: ClassVar[str] = "whom"

    whom: str
    times: int


class MetV1(Event, frozen=True, tag="koord.source.Met.v1"):
    """Version 1, as release 1 wrote it."""

    KEY: ClassVar[str] = "name"

    name: str


class MetState(CopyState):
    def __init__(self) -> None:
        super().__init__()
        self.met: list[tuple[str, int]] = []

    def apply(self, record: Any) -> None:
        match record.event:
            case Met(whom=whom, times=times):
                self.met.append((whom, times))


def _from_v1(old: dict[str, Any]) -> Met:
    return Met(whom=old["name"], times=len(old["name"]))


async def test_a_stored_old_version_is_read_through_its_upcaster(
    url: str, writer: Writer, follower_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(UPCASTERS, "koord.source.Met.v1", Upcaster(Met, _from_v1))
    reads = {"source": (Seen, Met)}
    received = await Following(url, follower_bus, new_state=MetState, reads=reads).start()
    await writer.append(MetV1(name="ann"), Seen(name="x"), Met(whom="ben", times=7), MetV1(name="clara"))
    expected = [("ann", 3), ("ben", 7), ("clara", 5)]
    await until(lambda: received.state.met == expected)
    read = await Following(url, None, new_state=MetState, reads=reads).start()
    assert read.state.met == expected
    assert read.follower.readable == {"source": ["koord.source.Met.v1", "koord.source.Met.v2", "koord.source.Seen.v1"]}
    stored = [row async for row in read.reader.rows(context="source", kind="Met.v1")]
    assert stored[-1].data == b'{"type":"koord.source.Met.v1","name":"clara"}', "what is stored is not rewritten"
    await received.close()
    await read.close()


async def test_an_upcaster_that_fails_parks_the_event(
    url: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(old: dict[str, Any]) -> Met:
        return Met(whom=old["nobody"]["is"][7], times=1)

    monkeypatch.setitem(UPCASTERS, "koord.source.Met.v1", Upcaster(Met, fails))
    _, bad = await writer.append(Met(whom="ben", times=7), MetV1(name="ann"))
    following = Following(url, None, new_state=MetState, reads={"source": (Met,)})
    with pytest.raises(Parked, match=f"source/{bad}"):
        await following.start()
    await following.close()
