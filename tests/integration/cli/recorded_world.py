"""Writes the logs of a scheduler's world without servers into a database, with the same seqs."""

from collections.abc import Sequence

from shared.events import Draft, RecordedEvent
from shared.events.log import WriterStarted
from shared.log.database import Database
from shared.log.writer import LogWriter
from tests.support.scheduling_world import World


def begin(world: World, *contexts: str) -> None:
    """Gives each log the event with which a writer begins; called before anything else."""
    for context in contexts:
        world.fold(world.append(context, WriterStarted(epoch=1, release="0"), None))


async def write(world: World, url: str) -> None:
    """Writes all logs of a world; each begins with WriterStarted, which the writer itself writes."""
    database = Database(url)
    for context, records in world.logs.items():
        writer = LogWriter(database, None, context, "test@1")
        await writer.acquire()
        await writer.begin("0", [], now_ns=records[0].at_ns, seen={})
        for appended in _appends(records[1:]):
            drafts = [Draft(record.event, cause=record.cause) for record in appended]
            seen = drafts[0].event.seen or {}
            await writer.append(drafts, now_ns=appended[0].at_ns, seen=seen, config="")
        await writer.close()
    await database.close()


def _appends(records: Sequence[RecordedEvent]) -> list[list[RecordedEvent]]:
    """Divides a log into appends: the first event of each has the positions that it rests on."""
    found: list[list[RecordedEvent]] = []
    for record in records:
        if record.event.seen is not None or not found:
            found.append([])
        found[-1].append(record)
    return found
