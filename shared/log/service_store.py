"""Rows of a service next to the log: snapshots, parked and skipped events, its registration as a follower."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import zstandard
from sqlalchemy import BigInteger, delete, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from shared.errors import KoordError
from shared.log.database import Database
from shared.log.position import Position
from shared.log.reader import LogReader
from shared.log.tables import events, followers, parked, skips, snapshots

log = logging.getLogger(__name__)

KEPT_SNAPSHOTS = 3
"""Number of snapshots that are kept, besides the one from which the next rebuild starts."""

FORGOTTEN_AFTER = timedelta(days=7)


class Snapshot(NamedTuple):
    """A State at its positions; `data` is the result of `State.encode`, `at` is its name."""

    at: datetime
    positions: dict[str, Position]
    data: bytes
    digest: bytes


class UnreadableByFollowers(KoordError):
    """A writer emits a version that a registered follower cannot read yet."""

    def __init__(self, service: str, context: str, kinds: Sequence[str]) -> None:
        super().__init__(
            f"{service} follows {context} and cannot read {', '.join(kinds)}; upgrade {service} first, or, if it is gone for good: "
            f"koord followers forget {service}"
        )


class NewerState(KoordError):
    """A later release has written this service's state; an older release would fold it differently."""

    def __init__(self, service: str, ours: int, theirs: int, release: str) -> None:
        super().__init__(
            f"{service} {release} has written its state with schema {theirs} and this release supports {ours}; "
            f"run that release, or, to go back for good, remove the rows of {service} with that schema from the table "
            "snapshots"
        )


class NoSuchEvent(KoordError):
    """The event to skip is not in the log."""

    def __init__(self, context: str, seq: int) -> None:
        super().__init__(f"there is no event {context}/{seq}; koord events --context {context} shows those there are")


class ServiceStore:
    """The rows of one service in the tables next to the log."""

    def __init__(self, database: Database, service: str) -> None:
        self._database = database
        self._service = service

    async def skips(self) -> frozenset[tuple[str, int]]:
        """Returns the events that this service skips, by a person's decision."""
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(skips.c.context, skips.c.seq).where(skips.c.service == self._service)
            )
            return frozenset((row.context, row.seq) for row in rows)

    async def skip(self, context: str, seq: int, *, reason: str, by: str) -> None:
        """Skips an event from the next start on; it is no longer parked.

        A State is a function of its positions and skips, so snapshots in which the event is folded are dropped.

        Raises:
            NoSuchEvent: the log has none at that seq.
        """
        async with self._database.engine.begin() as connection:
            found = select(events.c.seq).where(events.c.context == context, events.c.seq == seq)
            if await connection.scalar(found) is None:
                raise NoSuchEvent(context, seq)
            values = {"service": self._service, "context": context, "seq": seq, "reason": reason, "by": by}
            await connection.execute(upsert(skips).values(values).on_conflict_do_nothing())
            key = (parked.c.service == self._service, parked.c.context == context, parked.c.seq == seq)
            await connection.execute(delete(parked).where(*key))
            folded_to = snapshots.c.positions[(context, "0")].astext.cast(BigInteger)
            await connection.execute(delete(snapshots).where(snapshots.c.service == self._service, folded_to >= seq))

    async def park(self, context: str, seq: int, error: str) -> None:
        """Records an event that could not be folded."""
        async with self._database.engine.begin() as connection:
            values = {"service": self._service, "context": context, "seq": seq, "error": error}
            await connection.execute(upsert(parked).values(values).on_conflict_do_nothing())

    async def write_snapshot(
        self,
        positions: Mapping[str, Position],
        schema: int,
        code: str,
        packed: bytes,
        digest: bytes,
        keep: Collection[datetime] = (),
    ) -> None:
        """Stores a snapshot (`packed`: zstd) and drops those that are no longer needed; `keep` names some that are."""
        where = {name: [position.seq, position.digest.hex()] for name, position in sorted(positions.items())}
        async with self._database.engine.begin() as connection:
            values = {
                "service": self._service,
                "positions": where,
                "schema": schema,
                "code": code,
                "data": packed,
                "digest": digest,
            }
            await connection.execute(insert(snapshots).values(values))
            mine = snapshots.c.service == self._service
            kept = select(snapshots.c.at).where(mine).order_by(snapshots.c.at.desc()).limit(KEPT_SNAPSHOTS)
            await connection.execute(
                delete(snapshots).where(mine, snapshots.c.at.not_in(kept), snapshots.c.at.not_in(keep))
            )

    async def snapshots(self, schema: int) -> list[Snapshot]:
        """Returns the stored snapshots of this schema, newest first, unpacked; a damaged one is left out."""
        async with self._database.reading() as connection:
            query = select(snapshots).where(snapshots.c.service == self._service, snapshots.c.schema == schema)
            rows = (await connection.execute(query.order_by(snapshots.c.at.desc()))).all()
        return [snapshot for row in rows if (snapshot := _unpacked(row)) is not None]

    async def snapshot_names(self, schema: int) -> list[datetime]:
        """Returns the names of the kept snapshots, the oldest first."""
        async with self._database.reading() as connection:
            mine = (snapshots.c.service == self._service, snapshots.c.schema == schema)
            found = await connection.scalars(select(snapshots.c.at).where(*mine).order_by(snapshots.c.at))
            return list(found)

    async def newest_snapshot(self, schema: int, reader: LogReader) -> Snapshot | None:
        """Returns the newest snapshot whose positions agree with the log.

        Raises:
            NewerState: a release with a higher schema has written one.
        """
        mine = snapshots.c.service == self._service
        async with self._database.reading() as connection:
            latest = (
                select(snapshots.c.schema, snapshots.c.code).where(mine).order_by(snapshots.c.schema.desc()).limit(1)
            )
            row = (await connection.execute(latest)).first()
            if row is not None and row.schema > schema:
                raise NewerState(self._service, schema, row.schema, row.code)
            query = select(snapshots.c.at, snapshots.c.positions).where(mine, snapshots.c.schema == schema)
            rows = (await connection.execute(query.order_by(snapshots.c.at.desc()))).all()
        for at, positions in rows:
            agrees = [
                await reader.digest_at(context, position.seq) == position.digest
                for context, position in _positions(positions).items()
            ]
            if not all(agrees):
                log.warning("a snapshot does not fit the log and is left out", extra={"at": at})
                continue
            async with self._database.reading() as connection:
                stored = (await connection.execute(select(snapshots).where(mine, snapshots.c.at == at))).first()
            if stored is not None and (snapshot := _unpacked(stored)) is not None:
                return snapshot
        return None

    async def register(self, positions: Mapping[str, int], reads: Mapping[str, Sequence[str]]) -> None:
        """Records the positions of this service and the types that it can read."""
        values = {
            "service": self._service,
            "positions": dict(positions),
            "reads": {name: list(kinds) for name, kinds in reads.items()},
        }
        query = upsert(followers).values(values)
        changes = {**{name: query.excluded[name] for name in ("positions", "reads")}, "seen_at": func.clock_timestamp()}
        async with self._database.engine.begin() as connection:
            await connection.execute(query.on_conflict_do_update(index_elements=["service"], set_=changes))
            await connection.execute(
                delete(followers).where(followers.c.seen_at < func.clock_timestamp() - FORGOTTEN_AFTER)
            )

    async def check_readers(self, context: str, emits: Sequence[str]) -> None:
        """Checks that every registered follower of the context can read the types, or declares not to fold them.

        A follower declares the types it folds with their versions; it cannot read a newer version of a declared type.

        Raises:
            UnreadableByFollowers: names the follower and the types.
        """
        async with self._database.reading() as connection:
            known = followers.c.seen_at >= func.clock_timestamp() - FORGOTTEN_AFTER
            rows = (await connection.execute(select(followers.c.service, followers.c.reads).where(known))).all()
        for service, reads in rows:
            declared = set(reads.get(context, ()))
            stems = {name.rpartition(".v")[0] for name in declared}
            unreadable = [name for name in sorted(emits) if name not in declared and name.rpartition(".v")[0] in stems]
            if unreadable and service != self._service:
                raise UnreadableByFollowers(service, context, unreadable)

    async def forget(self) -> bool:
        """Drops the registration. Returns whether there was one."""
        async with self._database.engine.begin() as connection:
            return (
                await connection.execute(delete(followers).where(followers.c.service == self._service))
            ).rowcount > 0


def _positions(stored: Mapping[str, tuple[int, str]]) -> dict[str, Position]:
    return {context: Position(seq, bytes.fromhex(digest)) for context, (seq, digest) in stored.items()}


def _unpacked(row: Any) -> Snapshot | None:
    """A stored snapshot, None when it is not what was written."""
    try:
        data = zstandard.ZstdDecompressor().decompress(row.data)
    except zstandard.ZstdError:
        data = b""
    if sha256(data).digest() != row.digest:
        log.warning("a snapshot is damaged and is left out", extra={"service": row.service, "at": row.at})
        return None
    return Snapshot(row.at, _positions(row.positions), data, row.digest)
