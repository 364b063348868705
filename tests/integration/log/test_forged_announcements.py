"""Messages that no writer sent change no State and stop no follower: Postgres decides what is in the log."""

import os

import pytest

from shared.log import announcements
from shared.log.announcements import Beacon
from shared.log.position import Position
from tests.integration.log.test_following import FakeBus, RecordingBus
from tests.support.copier_service import Seen
from tests.support.forged_messages import forgeries
from tests.support.log_system import Following, Writer
from tests.support.waiting import until

EVENT = Seen(name="forged", number=666)


@pytest.mark.parametrize("what", [*forgeries("source", "copy", Position(), 1, EVENT)])
async def test_a_forged_message_changes_no_state_and_hides_no_event(url: str, what: str) -> None:
    kept, bus = RecordingBus(), FakeBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    following = await Following(url, bus).start()
    (first,) = await writer.see(1)
    bus.deliver(kept.batches[-1])
    await until(lambda: list(following.state.seen) == [first])
    for _ in range(20):
        for message in forgeries("source", "copy", writer.log.head, writer.log.epoch, EVENT)[what]:
            for subject in (announcements.batch_subject("source"), announcements.beacon_subject("source")):
                bus.receive(subject, message)
    await until(lambda: following.follower.refused.get("source", 0) > 0)
    (second,) = await writer.see(1)
    bus.deliver(kept.batches[-1])
    await until(lambda: list(following.state.seen) == [first, second])
    assert following.follower.positions["source"] == writer.log.head
    assert following.follower.reloads == 0
    assert not following.follower.failed.done()
    assert following.follower.lag == 0
    await following.close()
    await writer.close()


async def test_wrong_hints_cause_few_reads(url: str) -> None:
    bus = FakeBus()
    writer = await Writer(url).start()
    following = await Following(url, bus).start()
    for seq in range(2_000):
        bus.deliver(Beacon("source", writer.log.epoch, 2**40 + seq, os.urandom(32)))
        await until(lambda: _is_idle(following))
    assert following.follower.repairs < 20
    await following.close()
    await writer.close()


def _is_idle(following: Following) -> bool:
    repair = following.follower._contexts["source"].repair
    return repair is None or repair.done()


async def test_beacons_that_hide_the_head_delay_an_event_and_do_not_withhold_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.log.follower.HEAD_INTERVAL_S", 0.5)
    bus = FakeBus()
    writer = await Writer(url).start()  # announces nothing
    following = await Following(url, bus).start()
    old = writer.log.head
    (seq,) = await writer.see(1)

    def folded() -> bool:
        bus.deliver(Beacon("source", writer.log.epoch, old.seq, old.digest))
        return list(following.state.seen) == [seq]

    await until(folded)
    await following.close()
    await writer.close()


async def test_an_epoch_counts_once_postgres_has_its_writer(url: str) -> None:
    bus = FakeBus()
    writer = await Writer(url).start()
    following = await Following(url, bus).start()
    bus.deliver(Beacon("source", 2**62, writer.log.head.seq, writer.log.head.digest))
    await until(lambda: following.follower.refused == {"source": 1})
    assert following.follower._contexts["source"].epoch == writer.log.epoch
    (seq,) = await writer.see(1)
    bus.deliver(Beacon("source", writer.log.epoch, writer.log.head.seq, writer.log.head.digest))
    await until(lambda: list(following.state.seen) == [seq])
    await following.close()
    await writer.close()


async def test_no_message_of_a_busy_writer_is_refused(url: str) -> None:
    kept, bus = RecordingBus(), FakeBus()
    writer = await Writer(url, kept).start()  # type: ignore[arg-type]
    following = await Following(url, bus).start()
    given = 0
    for number in range(60):
        await writer.see(3)
        if number % 4 == 0:  # the bus loses some, so that reads and look-ups overlap
            given = len(kept.batches)
        for batch in kept.batches[given:]:
            bus.deliver(batch)
        given = len(kept.batches)
        bus.deliver(Beacon("source", writer.log.epoch, writer.log.head.seq, writer.log.head.digest))
    await until(lambda: following.follower.positions["source"] == writer.log.head)
    assert following.follower.repairs > 0
    assert following.follower.refused == {}
    await following.close()
    await writer.close()
