"""Checks that a log can answer for an instant: one that has not come yet has no answer, and the present is none."""

from datetime import UTC, datetime

from cli.terminal.durations import instant
from shared.errors import KoordError
from shared.log.reader import LogReader


class NotYetRecorded(KoordError):
    """An instant lies in the future."""

    def __init__(self, at: datetime, head: datetime | None) -> None:
        newest = f"the newest event of the log is of {instant(head)}" if head else "the log has no event yet"
        super().__init__(
            f"--at {instant(at)} is in the future: {newest}; give an earlier --at, or leave it out for the newest state"
        )


async def require_past(log: LogReader, at: datetime | None) -> None:
    """Refuses an instant that neither the clock nor the log has reached.

    Raises:
        NotYetRecorded: names the time of the log's head.
    """
    if at is None or at <= datetime.now(UTC):
        return
    newest = await newest_instant(log)
    if newest is None or newest < at:
        raise NotYetRecorded(at, newest)


async def newest_instant(log: LogReader) -> datetime | None:
    """Returns the instant of the newest event of all contexts; None for a log without events."""
    heads = [found for context in await log.contexts() if (found := await _head_time(log, context)) is not None]
    return max(heads, default=None)


async def _head_time(log: LogReader, context: str) -> datetime | None:
    seq = (await log.head(context)).seq
    return (await log.appended_at(context, [seq])).get(seq)
