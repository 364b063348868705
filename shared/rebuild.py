"""Rebuild and compare: in the background a service folds again from the last snapshot but one and compares digests.

Leaked and phantom accounting is the largest family of bugs in systems of this kind; a State that differs from the fold of
its own log is found here, within minutes, with the first event that explains it. Runs in a child process, so that the
service's loop is not held: `python -m shared.rebuild services.scheduler.service:SERVICE`.
"""

import asyncio
import importlib
import logging
import os
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.reader import LogReader
from shared.log.registry import Registry, Snapshot

if TYPE_CHECKING:
    from shared.service import Runtime, Service

log = logging.getLogger(__name__)


class Rebuilt(msgspec.Struct, frozen=True):
    """What a rebuild found.

    Attributes:
        compared: whether there were two snapshots to compare.
        path: where the State and the fold differ first; empty when they agree.
        event: `context/seq` of the first event since the older snapshot that is about that path.
    """

    compared: bool
    equal: bool = True
    path: str = ""
    event: str = ""


async def rebuild(service: "Service", database: Database) -> Rebuilt:
    """Fold from the last snapshot but one to the newest one's positions, and compare."""
    registry = Registry(database, service.name)
    schema = service.new_state().SCHEMA
    snapshots = await registry.snapshots(schema)
    if len(snapshots) < 2:
        return Rebuilt(compared=False)
    newest, older = snapshots[:2]
    reader = LogReader(database)
    follower = Follower(service.name, reader, None, service.follows, service.new_state)
    await follower.begin_at(older)
    await follower.caught_up({name: position.seq for name, position in newest.positions.items()})
    if follower.failed.done():
        await follower.failed
    encoded = follower.state.encode()
    if sha256(encoded).digest() == newest.digest:
        return Rebuilt(compared=True)
    path = first_difference(msgspec.msgpack.decode(newest.data), msgspec.msgpack.decode(encoded))
    return Rebuilt(
        compared=True, equal=False, path="/".join(path), event=await _explaining(reader, older, newest, path)
    )


def first_difference(ours: Any, folded: Any, path: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Where two decoded States differ first, in sorted order of names."""
    if isinstance(ours, dict) and isinstance(folded, dict):
        for name in sorted({*ours, *folded}, key=str):
            if name not in ours or name not in folded or ours[name] != folded[name]:
                return first_difference(ours.get(name), folded.get(name), (*path, str(name)))
    if isinstance(ours, list) and isinstance(folded, list):
        for index, (one, other) in enumerate(zip(ours, folded, strict=False)):
            if one != other:
                return first_difference(one, other, (*path, str(index)))
    return path


async def _explaining(reader: LogReader, older: Snapshot, newest: Snapshot, path: tuple[str, ...]) -> str:
    """The first event between the snapshots that names a part of the path."""
    for context in sorted(newest.positions):
        start = older.positions[context].seq if context in older.positions else 0
        async for row in reader.rows(context=context, after=start, upto=newest.positions[context].seq):
            if any(part == row.key or (len(part) > 3 and part.encode() in row.data) for part in reversed(path)):
                return f"{context}/{row.seq} {row.type} {row.key}"
    return ""


async def watch_rebuilds(runtime: "Runtime") -> None:
    """Rebuild every so often; a difference is an alarm, never a repair: the log is right and someone must look."""
    lead = getattr(runtime.service.lead, "func", runtime.service.lead)  # a partial belongs to the module of its function
    module = sys.modules[lead.__module__]
    name = next(name for name, value in vars(module).items() if value is runtime.service)
    while True:
        await asyncio.sleep(runtime.environment.rebuild_every_s)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shared.rebuild", f"{module.__name__}:{name}", stdout=asyncio.subprocess.PIPE
        )
        try:
            output, _ = await child.communicate()
        except asyncio.CancelledError:
            child.kill()
            raise
        if child.returncode != 0:
            log.warning("rebuild failed", extra={"status": child.returncode})
            continue
        found = msgspec.json.decode(output, type=Rebuilt)
        runtime.rebuilt = "equal" if found.equal else f"differs at {found.path}, see {found.event}"
        if not found.equal:
            runtime.metrics.differences.inc()
            log.error("state differs from the fold of its log", extra={"path": found.path, "event": found.event})


async def _main(target: str) -> Rebuilt:
    os.nice(10)
    module, _, name = target.partition(":")
    database = Database(os.environ["KOORD_POSTGRES"], pool_size=2, application="koord rebuild")
    try:
        return await rebuild(getattr(importlib.import_module(module), name), database)
    finally:
        await database.close()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_main(sys.argv[1]))))
