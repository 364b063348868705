"""Rebuild and compare: in the background a service folds again from the last snapshot that agreed, and compares
digests.

The next rebuild begins where this one ended, so every event is folded twice and no error can hide in a snapshot.

Leaked and phantom accounting is the largest family of bugs in systems of this kind. A State that differs from the fold
of its own log is found here, within minutes, with the first event that explains it. Runs in a child process, so that
the service's loop is not blocked: `python -m shared.runtime.rebuild services.scheduler.service:SERVICE [snapshot to
compare [snapshot to begin at]]`.
"""

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from shared.errors import KoordError
from shared.log.codec import Codec
from shared.log.database import FAILURES, Database
from shared.log.position import LogRewound, Position
from shared.log.projection import Projection
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)


class Rebuilt(msgspec.Struct, frozen=True):
    """Result of a rebuild.

    Attributes:
        upto: name of the snapshot that was compared; None when there is none.
        path: first path at which the State and the fold differ; empty when they agree.
        event: `context/seq` of the first event since the base that is about that path.
    """

    upto: datetime | None
    equal: bool = True
    path: str = ""
    event: str = ""


async def rebuild(
    service: Service, database: Database, upto: datetime | None = None, base: datetime | None = None
) -> Rebuilt:
    """Folds from a snapshot, or from the beginning, to another one's positions, and compares.

    Args:
        upto: name of the snapshot to compare; without it, or when it is gone, the newest.
        base: name of the snapshot to begin at; when it is gone, the oldest one that is kept.

    Raises:
        KoordError: the log cannot be folded from there any more.
    """
    store = ServiceStore(database, service.name)
    state = service.new_state()
    stored = await store.snapshots(state.SCHEMA)
    if not stored:
        return Rebuilt(upto=None)
    newest = next((snapshot for snapshot in stored if snapshot.at == upto), stored[0])
    reader = LogReader(database)
    codecs = {name: Codec(kinds) for name, kinds in service.follows.items()}
    projection = Projection(reader, codecs, state, await store.skips())
    begin: dict[str, Position] = {}
    if base is not None:
        older = next((snapshot for snapshot in stored if snapshot.at == base), stored[-1])
        projection.start_from(older)
        begin = older.positions
    for name, position in newest.positions.items():
        if name in codecs:
            await projection.read_to(name, position.seq)
            await _same_log(reader, name, position)
    encoded = state.encode()
    if sha256(encoded).digest() == newest.digest:
        return Rebuilt(newest.at)
    path = first_difference(msgspec.msgpack.decode(newest.data), msgspec.msgpack.decode(encoded))
    event = await _explaining(reader, begin, newest.positions, path)
    return Rebuilt(newest.at, equal=False, path="/".join(path), event=event)


async def _same_log(reader: LogReader, context: str, position: Position) -> None:
    found = await reader.digest_at(context, position.seq)
    if found != position.digest:
        raise LogRewound(context, position, found)


def first_difference(ours: Any, folded: Any, path: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the first path at which two decoded States differ, in sorted order of names; rows of a list are
    identified by the name they begin with.
    """
    ours, folded = _named(ours), _named(folded)
    if isinstance(ours, dict) and isinstance(folded, dict):
        for name in sorted({*ours, *folded}, key=str):
            if name not in ours or name not in folded:
                return (*path, str(name))
            if ours[name] != folded[name]:
                return first_difference(ours[name], folded[name], (*path, str(name)))
    return path


def _named(value: Any) -> Any:
    """Converts a list to a mapping: by the text each row begins with when those are distinct, by index otherwise."""
    if not isinstance(value, list):
        return value
    names = [row[0] for row in value if isinstance(row, list) and row and isinstance(row[0], str)]
    if value and len(set(names)) == len(value):
        return dict(zip(names, value, strict=True))
    return dict(enumerate(value))


async def _explaining(
    reader: LogReader, begin: Mapping[str, Position], end: Mapping[str, Position], path: tuple[str, ...]
) -> str:
    """Returns the first event since the base that names the most specific part of the path that any event names."""
    first: dict[str, str] = {}
    for context in sorted(end):
        start = begin[context].seq if context in begin else 0
        async for row in reader.rows(context=context, after=start, upto=end[context].seq):
            for part in path:
                if part not in first and (part == row.key or (len(part) > 3 and part.encode() in row.data)):
                    first[part] = f"{context}/{row.seq} {row.type} {row.key}"
    return next((first[part] for part in reversed(path) if part in first), "")


async def watch_rebuilds(runtime: Runtime) -> None:
    """Rebuilds at an interval. A difference is an alarm, never a repair: the log is right and a person must examine it."""
    target = _target(runtime.manifest)
    while True:
        await asyncio.sleep(runtime.environment.rebuild_interval_s)
        try:
            kept = await runtime.store.snapshot_names(runtime.state.SCHEMA)
        except FAILURES as error:
            log.warning("rebuild failed", extra={"error": repr(error)})
            continue
        if not kept:
            continue
        runtime.compared = kept[-1]  # kept from here on: the next rebuild begins there
        names = [each.isoformat() for each in (runtime.compared, runtime.base) if each is not None]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shared.runtime.rebuild", target, *names, stdout=asyncio.subprocess.PIPE
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
        runtime.base = found.upto or runtime.base
        if not found.equal:
            runtime.rebuilt = f"differs at {found.path}, see {found.event}"
            runtime.metrics.differences.inc()
            log.error("state differs from the fold of its log", extra={"path": found.path, "event": found.event})
        elif found.upto:
            runtime.rebuilt = runtime.rebuilt or "equal"  # a difference stays reported


def _target(service: Service) -> str:
    """Returns the import path of the declaration for a child process: `services.scheduler.service:SERVICE`."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is service:
                spec = getattr(module, "__spec__", None)  # of a module run by -m, whose name is __main__
                return f"{spec.name if spec else module.__name__}:{name}"
    raise KoordError(f"service {service.name} is declared in no module: a rebuild cannot find it")


async def _main(target: str, *names: datetime) -> Rebuilt:
    os.nice(10)
    from shared.runtime.service import Environment  # which imports this module

    environment = Environment.load("", os.environ)
    module, _, name = target.partition(":")
    declared: Service = getattr(importlib.import_module(module), name)
    database = Database(environment.postgres, pool_size=2, application="koord rebuild")
    try:
        return await rebuild(declared.member(environment.shard, environment.metrics_shards), database, *names)
    finally:
        await database.close()


if __name__ == "__main__":
    found = asyncio.run(_main(sys.argv[1], *map(datetime.fromisoformat, sys.argv[2:])))
    sys.stdout.buffer.write(msgspec.json.encode(found))
