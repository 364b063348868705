"""An export: which events, into which files, going on behind what is there already."""

import hashlib
import os
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from cli.export.export_file import Kind, opened
from cli.terminal.choice import chosen_contexts
from cli.terminal.time_arguments import Instant
from services.audit.settings import AuditSettings
from shared.errors import KoordError
from shared.file_replacement import replace_file
from shared.log.admin.session import reading
from shared.log.admin.verify import raw_digest_of
from shared.log.hash_chain import GENESIS
from shared.log.raw_rows import RawRow, first_kept, first_since, raw_page
from shared.log.reader import LogReader

PART = 500_000
"""Events of one file, at most: its seqs lie between two multiples of this."""


class SeqOrInstant(click.ParamType[int | datetime]):
    """A seq, or an instant as other commands take it."""

    name = "seq|instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime:
        """The number, or the instant."""
        if isinstance(value, int | datetime):
            return value
        if str(value).isdecimal():
            return int(value)
        instant: datetime = Instant().convert(value, param, ctx)
        return instant


class FilePart(msgspec.Struct, frozen=True):
    """A file of an export.

    Attributes:
        first, last: the seqs that it begins and ends with.
        digest: of its last event, hexadecimal.
        sha256: of the file.
    """

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    digest: str
    sha256: str


class Manifest(msgspec.Struct):
    """Contents of an export of a context."""

    context: str
    format: str
    compress: str
    parts: list[FilePart] = []


class Exported(NamedTuple):
    """Result of an export of a context; `new` are the events of this run."""

    context: str
    rows: int
    first: int
    last: int
    new: int
    files: int
    bytes: int


class ExportBroken(KoordError):
    """The log, or a file of an earlier run, is not what it was written as."""


async def export_all(
    postgres: str, context: str | None, kind: Kind, begin: object, end: object, out: Path
) -> list[Exported]:
    """Exports one context, or all.

    Raises:
        ExportBroken: a row does not fit the chain of digests, or a file not its manifest; names it.
        KoordError: there is no such context; the folder holds another kind of export.
    """
    source = AuditSettings.load("audit", os.environ).source
    async with reading(postgres) as log:
        contexts = chosen_contexts(await log.contexts(), context)
        return [await Export(log, name, kind, out, source).run(begin, end) for name in contexts]


class Export:
    """One context's files in a folder."""

    def __init__(self, log: LogReader, context: str, kind: Kind, out: Path, source: str) -> None:
        self._log = log
        self._context = context
        self._kind = kind
        self._out = out
        self._source = source
        self._file = out / f"{context}.manifest.json"
        out.mkdir(parents=True, exist_ok=True)
        for left in out.glob(f".{context}-*.new"):  # of a run that was killed
            left.unlink()
        self._manifest = self._read_manifest()

    async def run(self, begin: object, end: object) -> Exported:
        """Writes what is missing."""
        parts = self._manifest.parts
        for part in parts:
            self._check(part)
        head = (await self._log.head(self._context)).seq
        oldest = await first_kept(self._log.database, self._context)
        upto = await self._last(end, head)
        if parts:
            after = await self._behind(parts[-1], begin, oldest)
        else:
            after = max(oldest, await self._seq(begin, head + 1) if begin is not None else 1) - 1
        before = sum(part.rows for part in parts)
        previous = bytes.fromhex(parts[-1].digest) if parts else await self._digest_before(after)
        while after < upto:
            last = min(upto, (after // PART + 1) * PART)
            part = await self._write(after, last, previous)
            parts.append(part)
            self._write_manifest()
            after, previous = part.last, bytes.fromhex(part.digest)
        rows = sum(part.rows for part in parts)
        first, last = (parts[0].first, parts[-1].last) if parts else (0, 0)
        size = sum(part.bytes for part in parts)
        return Exported(self._context, rows, first, last, rows - before, len(parts), size)

    async def _seq(self, bound: object, none: int) -> int:
        """The seq that is meant; `none` for an instant after the last event."""
        if isinstance(bound, datetime):
            return await first_since(self._log.database, self._context, bound) or none
        assert isinstance(bound, int)
        return bound

    async def _last(self, end: object, head: int) -> int:
        if end is None:
            return head
        seq = await self._seq(end, head + 1)
        return min(head, seq - 1 if isinstance(end, datetime) else seq)

    async def _behind(self, last: FilePart, begin: object, oldest: int) -> int:
        """Where to go on behind what is there."""
        if begin is not None and await self._seq(begin, last.last) > last.last + 1:
            raise KoordError(f"{self._out} ends with {self._context}/{last.last}: --from would leave a hole behind it")
        if last.last + 1 < oldest:
            raise KoordError(
                f"{self._out} ends with {self._context}/{last.last} and the log begins at {oldest}: what is between was dropped; "
                "give another folder"
            )
        found = await self._log.digest_at(self._context, last.last)
        if found is not None and found.hex() != last.digest:
            raise ExportBroken(
                f"{self._context}/{last.last} has another digest than in {last.file}: the log was altered"
            )
        if found is None and last.last >= oldest:
            raise ExportBroken(f"{self._context}/{last.last} is in {last.file} and not in the log: it was cut short")
        return last.last

    async def _digest_before(self, after: int) -> bytes | None:
        """None when the row before was dropped: the chain is checked from the first row on then."""
        return GENESIS if after == 0 else await self._log.digest_at(self._context, after)

    async def _write(self, after: int, upto: int, previous: bytes | None) -> FilePart:
        name = f"{self._context}-{after + 1:012d}-{upto:012d}{self._kind.ending}"
        file = self._out / f".{name}.new"
        writer = opened(self._kind, file, self._context, self._source)
        try:
            first = after + 1
            while after < upto:
                rows = await raw_page(self._log, self._context, after, upto)
                previous = self._checked(rows, previous)
                writer.write(rows)
                after = rows[-1].seq
        except BaseException:
            writer.close()
            file.unlink()
            raise
        writer.close()
        assert previous is not None
        part = FilePart(name, first, after, after - first + 1, file.stat().st_size, previous.hex(), _sha256(file))
        file.replace(self._out / name)
        return part

    def _checked(self, rows: list[RawRow], previous: bytes | None) -> bytes:
        """The digest of the last row, after each was found to fit the one before it."""
        for row in rows:
            if previous is not None and raw_digest_of(row, self._context, previous) != row.digest:
                raise ExportBroken(
                    f"{self._context}/{row.seq} {row.type} {row.key}: the row does not have the digest it was written with"
                )
            previous = row.digest
        assert previous is not None
        return previous

    def _check(self, part: FilePart) -> None:
        file = self._out / part.file
        if not file.exists() or _sha256(file) != part.sha256:
            raise ExportBroken(f"{file} is not what {self._file.name} says; remove both or restore it")

    def _read_manifest(self) -> Manifest:
        new = Manifest(self._context, self._kind.form, self._kind.compress)
        if not self._file.exists():
            return new
        found = msgspec.json.decode(self._file.read_bytes(), type=Manifest)
        if (found.format, found.compress) != self._kind:
            raise KoordError(
                f"{self._out} holds {found.format} with compression {found.compress}; go on with that, or give another folder"
            )
        return found

    def _write_manifest(self) -> None:
        replace_file(self._file, msgspec.json.format(msgspec.json.encode(self._manifest), indent=2) + b"\n")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
