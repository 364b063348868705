"""The order and the bound of waiting messages."""

import asyncio

import pytest

from services.node_agent.transport.outbox import Message, Outbox
from shared.agents.subjects import ACTION, REPORT


def message(seq: int, kind: str = REPORT, size: int = 10) -> Message:
    return Message(kind, seq, b"x" * size)


async def drained(outbox: Outbox) -> list[tuple[str, int]]:
    found = []
    while len(outbox):
        first = await outbox.next()
        found.append((first.kind, first.seq))
        outbox.done(first)
    return found


async def test_actions_go_first_and_each_kind_in_its_order() -> None:
    outbox = Outbox(1_000)
    for one in (message(1), message(2), message(1, ACTION), message(3), message(2, ACTION)):
        outbox.put(one)
    assert await drained(outbox) == [(ACTION, 1), (ACTION, 2), (REPORT, 1), (REPORT, 2), (REPORT, 3)]
    assert (outbox.sent, outbox.waiting_bytes) == (5, 0)


async def test_without_space_the_oldest_reports_are_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(50)
    outbox.put(message(1, ACTION))
    for seq in range(1, 9):
        outbox.put(message(seq))
    assert outbox.dropped == 4
    assert outbox.waiting_bytes <= 50
    assert [record.dropped for record in caplog.records] == [1, 2, 4]  # type: ignore[attr-defined]
    assert await drained(outbox) == [(ACTION, 1), (REPORT, 5), (REPORT, 6), (REPORT, 7), (REPORT, 8)]


async def test_a_message_larger_than_the_limit_is_kept_alone() -> None:
    outbox = Outbox(50)
    outbox.put(message(1))
    outbox.put(message(2, size=80))
    assert await drained(outbox) == [(REPORT, 2)]


async def test_a_waiting_sender_is_woken() -> None:
    outbox = Outbox(50)
    waiting = asyncio.create_task(outbox.next())
    await asyncio.sleep(0)
    outbox.put(message(1))
    assert (await waiting).seq == 1


async def test_a_message_dropped_while_it_is_sent_removes_no_other() -> None:
    outbox = Outbox(20)
    outbox.put(message(1))
    under_way = await outbox.next()
    outbox.put(message(2))
    outbox.put(message(3))
    outbox.done(under_way)
    assert await drained(outbox) == [(REPORT, 2), (REPORT, 3)]


async def test_a_rejected_message_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(50)
    outbox.put(message(7))
    outbox.done(await outbox.next(), "its clock is an hour ahead")
    assert (len(outbox), outbox.sent, outbox.refused) == (0, 0, 1)
    assert "rejects" in caplog.text
