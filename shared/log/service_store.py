"""Rows of a service next to the log: snapshots, parked and skipped events, its registration as a follower."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import msgspec

from shared.errors import KoordError
from shared.log.database import Database
from shared.log.position import Position
from shared.log.reader import LogReader

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
        super().__init__(f"there is no event {context}/{seq}; koord events --log {context} shows those there are")


class ServiceStore:
    """The rows of one service in the tables next to the log."""

    def __init__(self, database: Database, service: str) -> None:
        self._database = database
        self._service = service

    async def skips(self) -> frozenset[tuple[str, int]]:
        """Returns the events that this service skips, by a person's decision."""
        async with self._database.reading() as connection:
            rows = await connection.fetch("select context, seq from skips where service = $1", self._service)
        return frozenset((context, seq) for context, seq in rows)

    async def skip(self, context: str, seq: int, *, reason: str, by: str) -> None:
        """Skips an event from the next start on; it is no longer parked.

        A State is a function of its positions and skips, so snapshots in which the event is folded are dropped.

        Raises:
            NoSuchEvent: the log has none at that seq.
        """
        event = (self._service, context, seq)
        async with self._database.transaction() as connection:
            found = await connection.fetchval("select seq from events where context = $1 and seq = $2", context, seq)
            if found is None:
                raise NoSuchEvent(context, seq)
            await connection.execute(
                "insert into skips (service, context, seq, reason, by) values ($1, $2, $3, $4, $5) on conflict do nothing",
                *event,
                reason,
                by,
            )
            await connection.execute("delete from parked where service = $1 and context = $2 and seq = $3", *event)
            await connection.execute(
                "delete from snapshots where service = $1 and (positions -> $2::text ->> 0)::bigint >= $3", *event
            )

    async def park(self, context: str, seq: int, error: str) -> None:
        """Records an event that could not be folded."""
        sql = "insert into parked (service, context, seq, error) values ($1, $2, $3, $4) on conflict do nothing"
        async with self._database.transaction() as connection:
            await connection.execute(sql, self._service, context, seq, error)

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
        values = (self._service, _text(where), schema, code, packed, digest)
        async with self._database.transaction() as connection:
            await connection.execute(
                "insert into snapshots (service, positions, schema, code, data, digest) values ($1, $2::jsonb, $3, $4, $5, $6)",
                *values,
            )
            await connection.execute(
                "delete from snapshots where service = $1 and at <> all($3) and at not in "
                "(select at from snapshots where service = $1 order by at desc limit $2)",
                self._service,
                KEPT_SNAPSHOTS,
                list(keep),
            )

    async def snapshots(self, schema: int) -> list[Snapshot]:
        """Returns the stored snapshots of this schema, newest first, unpacked; a damaged one is left out."""
        async with self._database.reading() as connection:
            rows = await connection.fetch(
                "select at, positions, data, digest from snapshots where service = $1 and schema = $2 order by at desc",
                self._service,
                schema,
            )
        return [snapshot for row in rows if (snapshot := self._unpacked(*row)) is not None]

    async def snapshot_names(self, schema: int) -> list[datetime]:
        """Returns the names of the kept snapshots, the oldest first."""
        async with self._database.reading() as connection:
            rows = await connection.fetch(
                "select at from snapshots where service = $1 and schema = $2 order by at", self._service, schema
            )
        return [at for (at,) in rows]

    async def newest_schema(self) -> int | None:
        """Returns the schema of the newest snapshot, whatever this release reads; None where there is none."""
        async with self._database.reading() as connection:
            schema: int | None = await connection.fetchval(
                "select schema from snapshots where service = $1 order by at desc limit 1", self._service
            )
        return schema

    async def newest_snapshot(
        self, schema: int, reader: LogReader, upto: Mapping[str, int] | None = None
    ) -> Snapshot | None:
        """Returns the newest snapshot whose positions agree with the log.

        Args:
            upto: context -> seq behind which the snapshot must not be.

        Raises:
            NewerState: a release with a higher schema has written one.
        """
        async with self._database.reading() as connection:
            latest = await connection.fetchrow(
                "select schema, code from snapshots where service = $1 order by schema desc limit 1", self._service
            )
            if latest is not None and latest["schema"] > schema:
                raise NewerState(self._service, schema, latest["schema"], latest["code"])
            rows = await connection.fetch(
                "select at, positions from snapshots where service = $1 and schema = $2 order by at desc",
                self._service,
                schema,
            )
        for at, stored_positions in rows:
            positions = _positions(stored_positions)
            if any(context in positions and positions[context].seq > seq for context, seq in (upto or {}).items()):
                continue
            agrees = [
                await reader.digest_at(context, position.seq) == position.digest
                for context, position in positions.items()
            ]
            if not all(agrees):
                log.warning("a snapshot does not fit the log and is left out", extra={"at": at})
                continue
            async with self._database.reading() as connection:
                stored = await connection.fetchrow(
                    "select at, positions, data, digest from snapshots where service = $1 and at = $2",
                    self._service,
                    at,
                )
            if stored is not None and (snapshot := self._unpacked(*stored)) is not None:
                return snapshot
        return None

    async def register(self, positions: Mapping[str, int], reads: Mapping[str, Sequence[str]]) -> None:
        """Records the positions of this service and the types that it can read."""
        folds = {name: list(kinds) for name, kinds in reads.items()}
        async with self._database.transaction() as connection:
            await connection.execute(
                "insert into followers (service, positions, reads) values ($1, $2::jsonb, $3::jsonb) on conflict (service) "
                "do update set positions = excluded.positions, reads = excluded.reads, seen_at = clock_timestamp()",
                self._service,
                _text(dict(positions)),
                _text(folds),
            )
            await connection.execute(
                "delete from followers where seen_at < clock_timestamp() - $1::interval", FORGOTTEN_AFTER
            )

    async def check_readers(self, context: str, emits: Sequence[str]) -> None:
        """Checks that every registered follower of the context can read the types, or declares not to fold them.

        A follower declares the types it folds with their versions; it cannot read a newer version of a declared type.

        Raises:
            UnreadableByFollowers: names the follower and the types.
        """
        async with self._database.reading() as connection:
            rows = await connection.fetch(
                "select service, reads from followers where seen_at >= clock_timestamp() - $1::interval",
                FORGOTTEN_AFTER,
            )
        for service, folds in rows:
            reads = msgspec.json.decode(folds, type=dict[str, list[str]])
            declared = set(reads.get(context, ()))
            stems = {name.rpartition(".v")[0] for name in declared}
            unreadable = [name for name in sorted(emits) if name not in declared and name.rpartition(".v")[0] in stems]
            if unreadable and service != self._service:
                raise UnreadableByFollowers(service, context, unreadable)

    async def forget(self) -> bool:
        """Drops the registration. Returns whether there was one."""
        async with self._database.transaction() as connection:
            sql = "delete from followers where service = $1 returning service"
            return await connection.fetchval(sql, self._service) is not None

    def _unpacked(self, at: datetime, positions: str, packed: bytes, digest: bytes) -> Snapshot | None:
        """Returns a stored snapshot, None when it is not what was written."""
        import zstandard  # a command that reads rows has no snapshot

        try:
            data = zstandard.ZstdDecompressor().decompress(packed)
        except zstandard.ZstdError:
            data = b""
        if sha256(data).digest() != digest:
            log.warning("a snapshot is damaged and is left out", extra={"service": self._service, "at": at})
            return None
        return Snapshot(at, _positions(positions), data, digest)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _positions(stored: str) -> dict[str, Position]:
    found = msgspec.json.decode(stored, type=dict[str, tuple[int, str]])
    return {context: Position(seq, bytes.fromhex(digest)) for context, (seq, digest) in found.items()}
