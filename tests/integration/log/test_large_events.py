"""Large events: what is read at a time is bounded by bytes, not only by a number of events."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from shared.log import reader
from shared.log.codec import Codec
from shared.log.position import Position
from shared.log.reader import LogReader, Page
from tests.support.copier_service import Seen
from tests.support.log_system import Following, Writer

SIZE = 20_000
BYTES = 90 * SIZE


async def test_a_page_of_large_events_ends_by_its_bytes(
    monkeypatch: pytest.MonkeyPatch, writer: Writer, following: Following
) -> None:
    monkeypatch.setattr(reader, "PAGE_BYTES", BYTES)
    appended = await writer.see(150, size=10) + await writer.see(400, size=10, text="x" * SIZE)
    fetched: list[int] = []

    class Measured(LogReader):
        def _slices(self, *arguments: Any) -> AsyncGenerator[Page, None]:
            *_, (_, _, _, _, _, data, _, _) = arguments
            fetched.append(len(data))
            return super()._slices(*arguments)

    pages = Measured(following.database).pages("source", Position(), writer.log.head.seq, Codec((Seen,)))
    found = [record.seq async for page in pages for record in page.records]
    assert found == appended
    assert sum(fetched) > 4 * BYTES
    assert max(fetched) < BYTES + 2 * SIZE
    rows = [row.seq async for row in following.reader.rows(context="source", kind="Seen")]
    assert rows == appended
    await following.start()
    assert list(following.state.seen) == appended


@pytest.mark.soak
async def test_more_than_a_gibibyte_of_large_events_is_read(writer: Writer, following: Following) -> None:
    """Postgres returns no value of more than a gibibyte."""
    appended = await writer.see(1_200, size=20, text="x" * 2**20)
    await following.start()
    assert list(following.state.seen) == appended
