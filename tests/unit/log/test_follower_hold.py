"""A follower whose State is held goes on receiving; `caught_up` returns after the end of the hold."""

import asyncio
from types import SimpleNamespace

import pytest

from shared.events import RecordedEvent
from shared.events.log import ConfigApplied
from shared.log.codec import Unreadable
from shared.log.follower import Follower
from shared.log.position import Position


class Count:
    """A State that counts its events; `bad` cannot be folded."""

    SCHEMA = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.count = 0

    def apply(self, record: RecordedEvent) -> None:
        assert isinstance(record.event, ConfigApplied)
        if record.event.text == "bad":
            raise ValueError("bad")
        self.count += 1


def follower() -> Follower:
    reader = SimpleNamespace(database=None)
    return Follower("test", reader, None, {"own": (ConfigApplied,)}, Count, own="own")  # type: ignore[arg-type]  # nothing is read


def append(following: Follower, seq: int, text: str = "x") -> None:
    """This process appends an event to its own context."""
    record = RecordedEvent("own", seq, ConfigApplied(source="", digest="", text=text), 0)
    following.own([record], Position(seq, b""), epoch=1)


async def test_a_hold_delays_the_fold_and_those_who_wait_for_it_but_not_the_receipt() -> None:
    following = follower()
    append(following, 1)
    await following.changed()
    with following.hold():
        append(following, 2)
        assert (following.state.count, following.positions["own"].seq, following.lag) == (1, 1, 0)  # type: ignore[attr-defined]
        waiting = asyncio.create_task(following.caught_up({"own": 2}))
        await asyncio.sleep(0)
        assert not waiting.done()
    assert (following.state.count, following.positions["own"].seq) == (2, 2)  # type: ignore[attr-defined]
    await waiting
    assert await following.changed(1), "the fold at the end of a hold is a change"


async def test_a_hold_in_which_nothing_is_received_is_no_change() -> None:
    following = follower()
    with following.hold():
        pass
    assert not await following.changed(0.01)


async def test_an_event_that_cannot_be_folded_when_the_hold_ends_stops_the_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = follower()
    stopped: list[Unreadable] = []
    monkeypatch.setattr(following._tasks, "stop_at", stopped.append)
    with following.hold():
        append(following, 1, "bad")
        assert stopped == []
    assert len(stopped) == 1
    assert not following.sound


async def test_a_hold_ends_with_the_decision_that_fails() -> None:
    following = follower()
    with pytest.raises(RuntimeError, match="no decision"), following.hold():
        append(following, 1)
        raise RuntimeError("no decision")
    assert following.state.count == 1  # type: ignore[attr-defined]
