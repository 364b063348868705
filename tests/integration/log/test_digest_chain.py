"""The chain of digests, computed independently of the log's code: by this file, and by the program in docs/log.md."""

import asyncio
import hashlib
import re
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from shared.events import Cause, Draft
from shared.log.admin.verify import Verified, verify
from shared.log.reader import LogReader
from tests.support.copier_service import Passed, Seen
from tests.support.log_system import Following, Writer, declare
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


def chain(rows: list[asyncpg.Record]) -> list[bytes]:
    """Returns the digest of each row, from all rows of a context."""

    def text(value: str | None) -> bytes:
        return b"\xff\xff\xff\xff" if value is None else struct.pack(">I", len(value.encode())) + value.encode()

    digest, digests = bytes(32), []
    for row in rows:
        since = row["at"].timestamp()
        at_us = int(since) * 1_000_000 + row["at"].microsecond
        digest = hashlib.sha256(
            digest
            + text(row["context"])
            + struct.pack(">Q", row["seq"])
            + text(row["type"])
            + struct.pack(">H", row["schema"])
            + text(row["key"])
            + struct.pack(">q", at_us)
            + text(row["actor"])
            + text(row["cause"])
            + text(row["correlation"])
            + struct.pack(">I", len(row["data"]))
            + row["data"]
        ).digest()
        digests.append(digest)
    return digests


@pytest.fixture
async def connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(url)
    yield opened
    await opened.close()


@pytest.fixture
async def reader(following: Following) -> LogReader:
    return following.reader


@pytest.fixture
async def filled(writer: Writer) -> Writer:
    await writer.see(40, size=7, text="plain")
    drafts = [
        Draft(Seen(name="ünï/cödé ✓", text='"\\\n'), cause=Cause("copy", 2**40), correlation="a pod's uid"),
        Draft(Passed(name="")),
        Draft(Seen(name="x", number=-(2**53)), correlation=""),
    ]
    await writer.log.append(drafts, now_ns=1_799_999_999_999_999_999, seen={"copy": 3}, config="abc")
    return writer


async def documented(url: str, context: str) -> tuple[int | None, str, str]:
    """Runs the program of docs/log.md as it is printed; returns exit code, output and errors."""
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "log.md").read_text(), re.MULTILINE | re.DOTALL)
    path = ROOT / "tests" / "support" / "standins"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, context, env={"PYTHONPATH": str(path)}, stdout=pipe, stderr=pipe
    )
    output, errors = await child.communicate()
    return child.returncode, output.decode(), errors.decode()


async def test_the_chain_agrees_with_another_implementation(
    url: str, filled: Writer, connection: asyncpg.Connection, reader: LogReader
) -> None:
    rows = await connection.fetch("select * from events_source order by seq")
    assert chain(rows) == [row["digest"] for row in rows]
    assert rows[-1]["digest"] == filled.log.head.digest
    assert await documented(url, "source") == (0, filled.log.head.digest.hex() + "\n", "")
    assert await verify(reader, "source") == Verified("source", checked=44, first=1)
    assert (await verify(reader, "copy")).ok, "an empty log fits"
    await connection.execute("update events_source set cause = 'copy/7' where seq = 42")
    assert await documented(url, "source") == (1, "", "source/42 does not fit\n")


BROKEN: dict[str, int] = {
    "update events_source set data = replace(convert_from(data, 'UTF8'), 'n5', 'n6')::bytea where seq = 7": 7,
    "update events_source set at = at + interval '1 microsecond' where seq = 20": 20,
    "update events_source set key = 'y' where seq = 44": 44,
    "update events_source set actor = 'someone@else' where seq = 1": 1,
    "update events_source set cause = null where seq = 42": 42,
    "update events_source set correlation = null where seq = 44": 44,
    "update events_source set schema = 2 where seq = 3": 3,
    "update events_source set type = 'koord.source.Seen.v2' where seq = 3": 3,
    "update events_source set digest = decode(repeat('00', 32), 'hex') where seq = 30": 30,
    "delete from events_source where seq = 12": 12,
    "delete from events_source where seq between 12 and 14": 12,
    "delete from events_source where seq = 1": 1,
    "insert into events_source select context, seq + 1, type, schema, key, at, actor, cause, correlation, data, digest "
    "from events_source where seq = 44": 45,
    "insert into events_source select context, seq + 9, type, schema, key, at, actor, cause, correlation, data, digest "
    "from events_source where seq = 44": 45,
    "update events_source set seq = case seq when 8 then 1008 else seq - 1 end where seq in (8, 9);"
    "update events_source set seq = 9 where seq = 1008": 8,
}


@pytest.mark.parametrize("altered", BROKEN, ids=lambda altered: altered[:60])
async def test_an_altered_removed_added_or_reordered_row_is_named(
    filled: Writer, connection: asyncpg.Connection, reader: LogReader, altered: str
) -> None:
    await connection.execute(altered)
    found = await verify(reader, "source")
    assert (found.ok, found.broken) == (False, BROKEN[altered]), found.reason


async def test_a_row_that_was_altered_with_all_later_digests_leaves_a_valid_chain(
    filled: Writer, connection: asyncpg.Connection, reader: LogReader
) -> None:
    """Changes that only a signed checkpoint outside the database can show."""
    await connection.execute("update events_source set key = 'forged' where seq = 40")
    rows = await connection.fetch("select * from events_source order by seq")
    for row, digest in zip(rows, chain(rows), strict=True):
        await connection.execute("update events_source set digest = $1 where seq = $2", digest, row["seq"])
    assert (await verify(reader, "source")).ok


async def test_a_log_without_its_oldest_partitions_fits_from_there(database: str) -> None:
    await declare(database, rows=10)
    writer = await Writer(database).start()
    await writer.see(35, size=5)
    connection = await asyncpg.connect(database)
    await connection.execute("alter table events_source detach partition events_source_p0; drop table events_source_p0")
    reader = LogReader(writer.database)
    assert await verify(reader, "source") == Verified("source", checked=27, first=10)
    await connection.execute("delete from events_source where seq < 15")
    found = await verify(reader, "source")
    assert (found.broken, found.reason) == (14, "is missing; the oldest row there is 15")
    await connection.close()
    await writer.close()


async def test_a_follower_at_an_altered_row_loads_its_state_anew(
    url: str, filled: Writer, connection: asyncpg.Connection
) -> None:
    following = await Following(url, None).start()
    await connection.execute("update events_source set digest = decode(repeat('11', 32), 'hex') where seq = 44")
    await until(lambda: following.follower.reloads == 1)
    await until(lambda: following.follower.positions["source"].digest == b"\x11" * 32)
    assert len(following.state.seen) == 42
    await following.close()
