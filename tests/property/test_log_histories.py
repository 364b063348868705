"""Any interleaving of appends, crashes and follows gives every follower the same contiguous history.

The log is a real Postgres. The writers' announcements pass through a network that loses, repeats and reorders them as
Hypothesis chooses. Nothing here waits for a clock: reads and polls are rules of their own.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any, ClassVar

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from shared.events import Draft, Event, RecordedEvent
from shared.events.log import WriterStarted
from shared.log import follower as follower_module
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.log.snapshot import pack
from shared.log.writer import LogWriter
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.waiting import PATIENCE_S

FOLLOWERS = 3
EXAMPLES = int(os.environ.get("KOORD_HISTORY_EXAMPLES", "40"))
_NUMBERS = itertools.count(1)


class Happened(Event, frozen=True, tag="koord.history.Happened.v1"):
    """Something, with a number of its own."""

    KEY: ClassVar[str] = "number"

    number: int


class History:
    """Everything that was folded, in order."""

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.events: list[tuple[int, int]] = []

    def apply(self, record: RecordedEvent) -> None:
        """Keep the seq with the number, or with the epoch."""
        event = record.event
        number = event.epoch if isinstance(event, WriterStarted) else event.number  # type: ignore[attr-defined]
        self.events.append((record.seq, number))
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """All of it."""
        return msgspec.msgpack.encode(self.events)

    def restore(self, data: bytes) -> None:
        """Restores the result of `encode`."""
        self.events = [tuple(pair) for pair in msgspec.msgpack.decode(data)]


class Network:
    """Keeps for each follower what it has not been given yet."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, dict[str, Callable[[bytes], None]]] = {}
        self.inflight: dict[int, list[tuple[str, bytes]]] = {}
        self.cut = False
        self.published = 0

    async def publish(self, subject: str, data: bytes) -> bool:
        """Send to everyone who listens."""
        self.published += 1
        if not self.cut:
            for messages in self.inflight.values():
                messages.append((subject, data))
        return True

    def deliver(self, number: int, index: int, *, again: bool) -> None:
        """Give a follower one of its messages, the first of them or any other."""
        messages = self.inflight[number]
        subject, data = messages[index % len(messages)]
        if not again:
            del messages[index % len(messages)]
        self.subscriptions[number][subject](data)


class Ear:
    """A follower's bus."""

    def __init__(self, network: Network, number: int) -> None:
        self.network, self.number = network, number
        network.subscriptions[number] = {}
        network.inflight[number] = []

    async def subscribe(self, subject: str, received: Callable[[bytes], None]) -> None:
        """Listen to a subject."""
        self.network.subscriptions[self.number][subject] = received


class Histories(RuleBasedStateMachine):
    """One context, one writer after the other, three followers that come and go."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.context = f"history-{next(_NUMBERS)}"
        self.network = Network()
        self.timelines: list[list[tuple[int, int]]] = [[]]
        self.numbers = itertools.count(1)
        self.followers: dict[int, Follower] = {}
        self.database: Database
        self.writer: LogWriter

    def run(self, work: Any) -> Any:
        """Run a coroutine, then let what it woke go on for a moment."""

        async def and_others() -> Any:
            result = await work
            for _ in range(3):
                await asyncio.sleep(0)
            return result

        return self.runner.run(and_others())

    @property
    def committed(self) -> list[tuple[int, int]]:
        """Returns the events in the log."""
        return self.timelines[-1]

    # the writer

    @initialize()
    def begin(self) -> None:
        """A context of this history's own, and its first writer."""

        async def work() -> None:
            connection = await asyncpg.connect(self.url)
            await connection.execute("select koord_declare_context($1, 7)", self.context)
            await connection.close()
            self.database = Database(self.url)
            await self.succeed()

        self.run(work())

    async def succeed(self) -> None:
        """The next writer takes over."""
        self.writer = LogWriter(self.database, self.network, self.context, "test@1", self.remember)  # type: ignore[arg-type]
        await self.writer.acquire()
        await self.writer.begin("0", [], now_ns=1, seen={})

    def remember(self, records: list[RecordedEvent], *_: object) -> None:
        """Called with every commit."""
        for record in records:
            event = record.event
            number = event.epoch if isinstance(event, WriterStarted) else event.number  # type: ignore[attr-defined]
            self.committed.append((record.seq, number))

    async def append(self, count: int) -> None:
        """Commit and announce."""
        drafts = [Draft(Happened(number=next(self.numbers))) for _ in range(count)]
        await self.writer.append(drafts, now_ns=1, seen={})

    @rule(count=st.integers(1, 9))
    def appends(self, count: int) -> None:
        """An append of some events, over one partition or several."""
        self.run(self.append(count))

    @rule(count=st.integers(0, 4))
    def crashes(self, count: int) -> None:
        """The writer dies, perhaps between a commit and its announcement; another takes over."""

        async def work() -> None:
            self.network.cut = True
            await self.append(count)
            await self.writer.close()
            self.network.cut = False
            await self.succeed()

        self.run(work())

    @rule()
    def publishes_its_head(self) -> None:
        """A beacon."""

        async def work() -> None:
            before = self.network.published
            telling = asyncio.create_task(self.writer._beacons())
            await asyncio.sleep(0)  # it publishes in its first step, and pauses before the next
            await cancel_and_wait(telling)
            assert self.network.published > before

        self.run(work())

    @rule(keep=st.integers(0, 12))
    def is_put_back(self, keep: int) -> None:
        """The database is restored to an earlier point: the newest events are gone, and others take their seqs."""

        async def work() -> None:
            await self.writer.close()
            head = max(1, len(self.committed) - keep)
            connection = await asyncpg.connect(self.url)
            await connection.execute("delete from events where context = $1 and seq > $2", self.context, head)
            await connection.execute("delete from snapshots where (positions->$1->>0)::bigint > $2", self.context, head)
            await connection.close()
            self.timelines.append(self.committed[:head])
            await self.succeed()

        self.run(work())

    # the followers

    @rule(number=st.integers(0, FOLLOWERS - 1))
    def starts_following(self, number: int) -> None:
        """A follower begins, or begins again."""

        async def work() -> None:
            if number in self.followers:
                await self.followers[number].stop()
            reads = {self.context: (Happened, WriterStarted)}
            ear: Any = Ear(self.network, number)
            follower = Follower(f"{self.context}/{number}", LogReader(self.database), ear, reads, History)
            await follower.start()
            self.followers[number] = follower

        self.run(work())

    @rule(number=st.integers(0, FOLLOWERS - 1), index=st.integers(0, 20), again=st.booleans())
    def receives(self, number: int, index: int, again: bool) -> None:
        """One message arrives: in its turn, late, early, or once more."""
        if self.network.inflight.get(number):

            async def work() -> None:
                self.network.deliver(number, index, again=again)

            self.run(work())

    @rule(number=st.integers(0, FOLLOWERS - 1), count=st.integers(1, 20))
    def receives_in_order(self, number: int, count: int) -> None:
        """Messages arrive as they were sent."""

        async def work() -> None:
            for _ in range(min(count, len(self.network.inflight.get(number, ())))):
                self.network.deliver(number, 0, again=False)

        self.run(work())

    @rule(number=st.integers(0, FOLLOWERS - 1), index=st.integers(0, 20))
    def misses(self, number: int, index: int) -> None:
        """A message is lost."""
        if messages := self.network.inflight.get(number):
            del messages[index % len(messages)]

    @rule(number=st.integers(0, FOLLOWERS - 1))
    def reads(self, number: int) -> None:
        """Whatever it reads from Postgres arrives."""
        if number in self.followers:
            self.run(self.settle(self.followers[number]))

    @rule(number=st.integers(0, FOLLOWERS - 1))
    def polls(self, number: int) -> None:
        """It asks for the head; what it reads then arrives with a later rule."""
        if number in self.followers:
            self.run(self.followers[number]._poll_heads())

    @rule(number=st.integers(0, FOLLOWERS - 1))
    def writes_a_snapshot(self, number: int) -> None:
        """Its State is stored; its next start begins there."""
        if number in self.followers:
            follower = self.followers[number]
            packed = pack(follower.state)
            registry = ServiceStore(self.database, f"{self.context}/{number}")
            self.run(registry.write_snapshot(follower.positions, 1, "0", packed[32:], packed[:32]))

    async def settle(self, follower: Follower) -> None:
        """Wait for its reads."""
        async with asyncio.timeout(PATIENCE_S):
            while reads := [task for task in follower._tasks._tasks if task.get_name() != "follower"]:
                await asyncio.wait(reads)

    # what must hold

    @invariant()
    def no_history_has_a_hole_or_an_invention(self) -> None:
        """At any moment a follower knows the beginning of the log, or of what the log was before it was put back."""
        for follower in self.followers.values():
            events = follower.state.events  # type: ignore[attr-defined]
            assert not follower.failed.done(), follower.failed.exception()
            assert any(timeline[: len(events)] == events for timeline in self.timelines), (events, self.timelines)
            assert follower.positions[self.context].seq == len(events)

    def teardown(self) -> None:
        """Left alone, every follower arrives at the same history: the log's."""

        async def work() -> None:
            for follower in self.followers.values():
                for _ in range(4):
                    await follower._poll_heads()
                    await self.settle(follower)
            if hasattr(self, "writer"):
                connection = await asyncpg.connect(self.url)
                stored = await connection.fetch("select seq from events where context = $1 order by seq", self.context)
                await connection.close()
                assert [row["seq"] for row in stored] == [seq for seq, _ in self.committed]
                assert [seq for seq, _ in self.committed] == list(range(1, len(self.committed) + 1))

        try:
            self.run(work())
            for follower in self.followers.values():
                assert follower.state.events == self.committed  # type: ignore[attr-defined]
                assert follower.positions[self.context] == self.writer.head
        finally:
            self.run(self.close())
            self.runner.close()

    async def close(self) -> None:
        """Give everything back."""
        for follower in self.followers.values():
            await follower.stop()
        if hasattr(self, "writer"):
            await self.writer.close()
            await self.database.close()


def test_every_interleaving_of_appends_crashes_and_follows_yields_the_same_history_for_every_follower(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "GRACE_S", 0)
    monkeypatch.setattr(follower_module, "POLL_INTERVAL_S", 3600)
    monkeypatch.setattr(follower_module, "LOAD_AGAIN_S", 0.01)
    monkeypatch.setattr(follower_module, "BEACON_LATE_S", -1)
    Histories.url = database
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),  # a shorter example would cost minutes on a real server
            print_blob=False,
        ),
    )
