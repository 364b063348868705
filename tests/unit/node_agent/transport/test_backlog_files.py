"""Reports on disk through an outage: their order, their bound, and what a crash or a full disk leaves."""

import os
from pathlib import Path

import pytest

from services.node_agent.transport.backlog_files import BacklogFiles
from services.node_agent.transport.outbox import REPORTS_IN_A_FILE, Message, Outbox
from shared.agents import backlog
from shared.agents.subjects import ACTION, REPORT

NODE = "n"


def files(folder: Path, boot: str = "b", limit_bytes: int = 1_000_000) -> BacklogFiles:
    return BacklogFiles(folder / "backlog", NODE, boot, limit_bytes)


def unpacked(data: bytes) -> tuple[str, int, list[int]]:
    message, reports = backlog.decode(data, NODE)
    return message.boot, message.seq, [int(report) for report in reports]


async def drained(outbox: Outbox) -> list[int]:
    """Returns the reports in the order in which they are sent."""
    found = list[int]()
    while len(outbox) or outbox.kept[0]:
        message = await outbox.next(REPORT)
        found += unpacked(message.data)[2] if message.file else [int(message.data)]
        outbox.done(message)
    return found


def put(outbox: Outbox, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        outbox.put(Message(REPORT, seq, b"%d" % seq))


async def test_newer_reports_are_sent_before_those_of_the_outage_which_keep_their_order(tmp_path: Path) -> None:
    outbox = Outbox(1_000_000, files(tmp_path))
    put(outbox, 1, 50)
    assert outbox.kept[0] == 2 * REPORTS_IN_A_FILE
    assert len(outbox) == 10, "the others wait in memory"
    assert await drained(outbox) == [*range(41, 51), *range(1, 41)]
    assert outbox.dropped_from_disk == outbox.dropped == outbox.kept[0] == outbox.kept[1] == 0
    assert list((tmp_path / "backlog").iterdir()) == []


async def test_a_report_that_comes_while_the_backlog_is_sent_goes_first(tmp_path: Path) -> None:
    outbox = Outbox(1_000_000, files(tmp_path))
    put(outbox, 1, 40)
    outbox.keep_all()
    outbox.done(await outbox.next(REPORT))
    outbox.put(Message(REPORT, 99, b"99"))
    outbox.put(Message(ACTION, 1, b"a"))
    first = await outbox.next()
    assert first.kind == ACTION
    outbox.done(first)
    assert (await drained(outbox))[:2] == [99, 21]


async def test_a_restarted_agent_sends_the_reports_of_its_earlier_runs_first(tmp_path: Path) -> None:
    for boot, first in (("one", 1), ("two", 31)):
        outbox = Outbox(1_000_000, files(tmp_path, boot))
        put(outbox, first, first + 29)
        outbox.keep_all()
    (tmp_path / "backlog" / ".000000000009.20.new").write_bytes(b"half")
    last = Outbox(1_000_000, files(tmp_path, "three"))
    sent = list[tuple[str, int, list[int]]]()
    while last.kept[0]:
        message = await last.next()
        sent.append(unpacked(message.data))
        last.done(message)
    assert [(boot, seq) for boot, seq, _ in sent] == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]
    assert [seq for _, _, reports in sent for seq in reports] == list(range(1, 61))


async def test_the_oldest_reports_on_disk_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(1_000_000, BacklogFiles(tmp_path / "backlog", NODE, "b", 10_000))
    for seq in range(1, 401):
        outbox.put(Message(REPORT, seq, os.urandom(100)))
    kept, size = outbox.kept
    assert size <= 10_000
    assert sum(file.stat().st_size for file in (tmp_path / "backlog").iterdir()) == size
    assert kept + outbox.dropped_from_disk + len(outbox) == 400
    assert kept >= 60
    assert "the oldest are dropped" in caplog.text


async def test_a_disk_that_takes_nothing_leaves_the_reports_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "backlog").write_text("a file where the folder should be")
    outbox = Outbox(1_000_000, files(tmp_path))
    put(outbox, 1, 50)
    assert (len(outbox), outbox.kept) == (50, (0, 0))
    assert len(caplog.records) == 1
    (tmp_path / "backlog").unlink()
    put(outbox, 51, 51)
    assert outbox.kept[0] == REPORTS_IN_A_FILE


async def test_large_reports_share_files_only_up_to_the_size_that_a_message_may_have(tmp_path: Path) -> None:
    outbox = Outbox(100_000_000, files(tmp_path, limit_bytes=100_000_000))
    for seq in range(21):
        outbox.put(Message(REPORT, seq, os.urandom(300_000)))
    outbox.keep_all()
    assert outbox.kept[0] == 21
    while outbox.kept[0]:
        message = await outbox.next()
        backlog.decode(message.data, NODE)
        outbox.done(message)
