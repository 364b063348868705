"""Snapshots and registrations: short starts, rebuilds that compare, and releases that wait for their readers."""

import asyncio
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest
import zstandard

from shared.log.database import Database
from shared.log.service_store import NewerState, ServiceStore, UnreadableByFollowers
from shared.log.snapshot import SnapshotFailed, pack_in_child
from shared.runtime.rebuild import first_difference, rebuild
from tests.support.copier_service import SERVICE, CopyState, Seen
from tests.support.log_system import Following, Writer
from tests.support.waiting import until


@pytest.fixture
async def database_of_url(url: str) -> AsyncIterator[Database]:
    opened = Database(url)
    yield opened
    await opened.close()


@pytest.fixture
def registry(database_of_url: Database) -> ServiceStore:
    return ServiceStore(database_of_url, "test")


async def store(following: Following, registry: ServiceStore, schema: int = 1) -> None:
    positions = following.follower.positions
    digest, packed = await pack_in_child(following.state)
    await registry.write_snapshot(positions, schema, "1.2.3", packed, digest)


class Counting(CopyState):
    """A State that counts the events that it folds itself."""

    folded = 0

    def apply(self, record: object) -> None:
        type(self).folded += 1
        super().apply(record)  # type: ignore[arg-type]


async def test_a_start_takes_the_snapshot_and_folds_the_tail_alone(
    url: str, writer: Writer, following: Following, registry: ServiceStore
) -> None:
    await writer.see(200, size=50)
    await following.start()
    await store(following, registry)
    tail = await writer.see(30, size=10)
    Counting.folded = 0
    later = await Following(url, None, new_state=Counting).start()
    assert Counting.folded == len(tail)
    await until(lambda: len(following.state.seen) == 230)
    assert later.state.encode() == following.state.encode(), "the same State, from its beginning and from a snapshot"
    assert later.follower.positions == following.follower.positions
    await later.close()


async def test_a_snapshot_that_differs_from_the_log_is_left_out_and_an_older_one_loaded(
    url: str, writer: Writer, following: Following, registry: ServiceStore
) -> None:
    await writer.see(10)
    await following.start()
    await store(following, registry)
    await writer.see(10)
    await until(lambda: len(following.state.seen) == 20)
    await store(following, registry)
    connection = await asyncpg.connect(url)
    await connection.execute("update events_source set digest = decode(repeat('00', 32), 'hex') where seq = 21")
    await connection.close()
    Counting.folded = 0
    later = await Following(url, None, new_state=Counting).start()
    assert Counting.folded == 10, "those after the older snapshot"
    assert later.state.seen == following.state.seen
    await later.close()


@pytest.mark.parametrize(
    "damage", ["substr(data, 1, 20)", "data || '\\x00'::bytea", "overlay(data placing '\\x00' from 30)"]
)
async def test_a_damaged_snapshot_is_left_out(
    url: str, writer: Writer, following: Following, registry: ServiceStore, damage: str
) -> None:
    await writer.see(10)
    await following.start()
    await store(following, registry)
    connection = await asyncpg.connect(url)
    await connection.execute(f"update snapshots set data = {damage}")
    await connection.close()
    later = await Following(url, None).start()
    assert later.state.seen == following.state.seen
    await later.close()


async def test_three_snapshots_are_kept(writer: Writer, following: Following, registry: ServiceStore) -> None:
    await following.start()
    for _ in range(5):
        await writer.see(1)
        await until(lambda: following.follower.positions["source"] == writer.log.head)
        await store(following, registry)
    seqs = [snapshot.positions["source"].seq for snapshot in await registry.snapshots(1)]
    assert seqs == [6, 5, 4]


async def test_older_code_refuses_a_newer_state(
    url: str, writer: Writer, following: Following, registry: ServiceStore
) -> None:
    await writer.see(3)
    await following.start()
    await store(following, registry, schema=2)
    later = Following(url, None)
    with pytest.raises(
        NewerState, match=r"test 1\.2\.3 has written its state with schema 2 and this release supports 1"
    ):
        await later.start()
    await later.close()


async def test_a_newer_release_folds_anew_beside_an_older_state(
    url: str, writer: Writer, following: Following, registry: ServiceStore
) -> None:
    class Newer(CopyState):
        SCHEMA = 2

    await writer.see(3)
    await following.start()
    await store(following, registry)
    later = await Following(url, None, new_state=Newer).start()
    assert later.state.seen == following.state.seen
    await later.close()


async def test_a_snapshot_has_the_state_of_its_instant_and_the_loop_continues(
    writer: Writer, following: Following
) -> None:
    class Slow(CopyState):
        def encode(self) -> bytes:
            ends = time.monotonic() + 0.5
            while time.monotonic() < ends:
                pass
            return super().encode()

    state = Slow()
    state.seen = {1: "a"}
    packing = asyncio.ensure_future(pack_in_child(state))
    ticks = 0
    while not packing.done():
        await asyncio.sleep(0.01)
        ticks += 1
        state.seen[ticks + 1] = "later"
    digest, _ = packing.result()
    expected = CopyState()
    expected.seen = {1: "a"}
    assert digest == sha256(expected.encode()).digest()
    assert ticks >= 10


async def test_a_state_that_cannot_be_encoded_is_logged_and_stops_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(CopyState):
        def encode(self) -> bytes:
            raise ValueError("no such thing")

    with pytest.raises(SnapshotFailed, match="status 1"):
        await pack_in_child(Broken())
    assert "no such thing" in capfd.readouterr().err


async def test_the_child_of_a_snapshot_holds_no_connection_of_its_parent(url: str) -> None:
    connection = await asyncpg.connect(url)

    class Looks(CopyState):
        def encode(self) -> bytes:
            kinds = [str(handle.readlink()) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
            return repr([kind for kind in kinds if kind.startswith("socket")]).encode()

    _, packed = await pack_in_child(Looks())
    assert zstandard.ZstdDecompressor().decompress(packed) == b"[]"
    await connection.close()


async def test_a_rebuild_agrees_with_a_sound_state_and_names_the_event_behind_a_difference(
    url: str, writer: Writer, database_of_url: Database
) -> None:
    registry = ServiceStore(database_of_url, "copier")
    following = await Following(url, None, service="copier").start()
    assert (await rebuild(SERVICE, database_of_url)).upto is None
    await writer.append(*(Seen(name=f"pod-{number}") for number in range(5)))
    await following.follower.read_to_head("source")
    await store(following, registry)
    await writer.append(*(Seen(name=f"pod-{number}") for number in range(5, 10)))
    await following.follower.read_to_head("source")
    await store(following, registry)
    found = await rebuild(SERVICE, database_of_url)
    assert (found.upto is not None, found.equal) == (True, True)

    await writer.append(Seen(name="pod-10"), Seen(name="pod-11"))
    await following.follower.read_to_head("source")
    following.state.copied["pod-10"] = [11]
    await store(following, registry)
    found = await rebuild(SERVICE, database_of_url)
    assert (found.equal, found.path) == (False, "copied/pod-10")
    assert found.event == "source/12 koord.source.Seen.v1 pod-10"
    await following.close()


def test_the_first_difference_is_named_by_the_first_text_of_a_row() -> None:
    ours = {"nodes": [["a", 1], ["b", 2], ["c", 3]], "cycle": 7}
    assert first_difference(ours, {"nodes": [["a", 1], ["b", 5], ["c", 3]], "cycle": 7}) == ("nodes", "b", "1")
    assert first_difference(ours, {"nodes": [["a", 1], ["c", 3]], "cycle": 7}) == ("nodes", "b")
    assert first_difference(ours, {"nodes": ours["nodes"], "cycle": 8}) == ("cycle",)
    assert first_difference({"x": [1, 2]}, {"x": [1, 2, 3]}) == ("x", "2")


async def test_a_writer_may_not_emit_types_that_a_registered_follower_cannot_read(
    url: str, registry: ServiceStore
) -> None:
    writes = ServiceStore(Database(url), "source-writer")
    await registry.register({"source": 1}, {"source": ["koord.source.Met.v1", "koord.source.Seen.v1"]})
    await writes.check_readers("source", ["koord.source.Seen.v1", "koord.source.Unheard.v1"])
    with pytest.raises(UnreadableByFollowers, match=r"test follows source and cannot read koord\.source\.Met\.v2"):
        await writes.check_readers("source", ["koord.source.Met.v2", "koord.source.Seen.v1"])
    await writes.check_readers("copy", ["koord.source.Met.v2"])
    await registry.register({"source": 1}, {"source": ["koord.source.Met.v1", "koord.source.Met.v2"]})
    await writes.check_readers("source", ["koord.source.Met.v2"])
    await writes.check_readers("source", ["koord.source.Met.v1"])  # an older writer beside a newer follower
    await writes._database.close()


async def test_a_follower_that_was_not_seen_for_seven_days_blocks_no_writer(url: str, registry: ServiceStore) -> None:
    writes = ServiceStore(Database(url), "source-writer")
    await registry.register({"source": 1}, {"source": ["koord.source.Met.v1"]})
    with pytest.raises(UnreadableByFollowers):
        await writes.check_readers("source", ["koord.source.Met.v2"])
    connection = await asyncpg.connect(url)
    await connection.execute("update followers set seen_at = clock_timestamp() - interval '7 days 1 second'")
    await writes.check_readers("source", ["koord.source.Met.v2"])
    await writes.register({}, {})
    assert await connection.fetchval("select array_agg(service) from followers") == ["source-writer"]
    assert await writes.forget()
    assert not await writes.forget()
    await connection.close()
    await writes._database.close()
