"""One file of an export: JSON lines of CloudEvents, or Parquet with a column for each part of an event."""

import gzip
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import zstandard

from services.audit.cloudevent import CloudEvents
from shared.errors import KoordError
from shared.log.raw_rows import RawRow

FORMATS = ("jsonl", "parquet")
COMPRESSIONS = ("zstd", "gzip", "none")

_ENDINGS = {"zstd": ".zst", "gzip": ".gz", "none": ""}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(NamedTuple):
    """The format of a file."""

    form: str
    compress: str

    @property
    def ending(self) -> str:
        """File name suffixes; Parquet compresses inside."""
        return ".parquet" if self.form == "parquet" else f".jsonl{_ENDINGS[self.compress]}"


class Part(Protocol):
    """A file that is being written."""

    def write(self, rows: Sequence[RawRow]) -> None:
        """Adds events."""

    def close(self) -> None:
        """Completes the file."""


def opened(kind: Kind, file: Path, context: str, source: str) -> Part:
    """A new file.

    Raises:
        KoordError: Parquet is wanted and its library is not installed.
    """
    if kind.form == "parquet":
        return _Parquet(file, kind.compress, context)
    return _Lines(file, kind.compress, CloudEvents(context, source))


class _Lines:
    def __init__(self, file: Path, compress: str, events: CloudEvents) -> None:
        self._events = events
        self._file: Any = file.open("wb")
        self._inner: Any = None
        if compress == "zstd":
            self._inner = zstandard.ZstdCompressor(level=6).stream_writer(self._file, closefd=False)
        elif compress == "gzip":
            self._inner = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=6, mtime=0)

    def write(self, rows: Sequence[RawRow]) -> None:
        encode = self._events.encode
        lines = b"".join(encode(row, most_bytes=sys.maxsize) + b"\n" for row in rows)
        (self._inner or self._file).write(lines)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._file.close()


class _Parquet:
    def __init__(self, file: Path, compress: str, context: str) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ModuleNotFoundError as error:
            raise KoordError("Parquet needs pyarrow; pip install 'koordstream[export]', or --format jsonl") from error
        self._pa = pa
        self._context = context
        names = pa.dictionary(pa.int32(), pa.string())
        self._schema = pa.schema(
            [
                pa.field("context", names, nullable=False),
                pa.field("seq", pa.int64(), nullable=False),
                pa.field("type", names, nullable=False),
                pa.field("schema", pa.int16(), nullable=False),
                pa.field("key", pa.string(), nullable=False),
                pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
                pa.field("actor", names, nullable=False),
                pa.field("cause", pa.string()),
                pa.field("correlation", pa.string()),
                pa.field("data", pa.string(), nullable=False),
                pa.field("digest", pa.binary(32), nullable=False),
            ]
        )
        compression = "none" if compress == "none" else compress
        self._writer = parquet.ParquetWriter(file, self._schema, compression=compression)

    def write(self, rows: Sequence[RawRow]) -> None:
        seqs, kinds, schemas, keys, ats, actors, causes, correlations, data, digests = zip(*rows, strict=True)
        columns = [
            [self._context] * len(rows), seqs, kinds, schemas, keys, [_EPOCH + timedelta(microseconds=us) for us in ats],
            actors, causes, correlations, [text.decode() for text in data], digests,
        ]  # fmt: skip
        arrays = [self._pa.array(list(column), field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
