"""An event of the log as a CloudEvent 1.0: structured JSON, built from its row without decoding the data.

    {"specversion":"1.0","id":"cluster/42","source":"koordstream","type":"koord.cluster.PodBound.v1",
     "subject":"shop/web-0","time":"2026-07-30T10:00:00.000001Z","datacontenttype":"application/json","seq":"42",
     "schema":1,"actor":"gateway@1","cause":"scheduling/12","correlation":"5f3a…","digest":"9f86…","data":{…}}

`data` is the last member and holds the row's bytes unchanged; the digest covers the members together. Null columns of
the row are left out. `seq` is a text, since an integer of a CloudEvent has 32 bits.
"""

import re
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from services.audit.service_manifest import READ, SUBJECT
from shared.bus.jetstream import Outgoing
from shared.log.raw_rows import RawRow

LARGEST = 960 * 1024
"""Bytes of one message, below a NATS server's default of 1 MiB with its headers. A larger event is sent without its data."""

ENVELOPE = 600
"""Estimated bytes of a stored message besides its data and key, rounded up."""

_PLAIN = re.compile(r"[^.*>%\s\x00-\x1f\x7f]{1,1024}").fullmatch
_PLAIN_KIND = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*").fullmatch
_UNSAFE = re.compile(r"[.*>%\s\x00-\x1f\x7f]")

_text = msgspec.json.Encoder().encode


def event_subject(context: str, kind: str, key: str) -> str:
    """Returns the subject of an event: `koord.event.<context>.<type>.<key>`."""
    area = (
        kind if _PLAIN_KIND(kind) else token(kind)
    )  # an unknown type may contain any characters: the log does not restrict it
    return f"{SUBJECT}.{context}.{area}.{key if _PLAIN(key) else token(key)}"


def token(key: str) -> str:
    """Encodes a key as one token of a subject: `.`, `*`, `>`, `%` and white space as %XX; `%` alone for an empty one.

    A key of more than 1,024 characters ends with its SHA-256, since the length of a subject is limited.
    """
    encoded = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), key)
    if len(encoded) > 1024:
        encoded = f"{encoded[:960]}%{sha256(key.encode()).hexdigest()}"
    return encoded or "%"


class CloudEvents:
    """Encodes the CloudEvents of one context."""

    def __init__(self, context: str, source: str) -> None:
        self._context = context
        self._source = _text(source)
        self._begin = b'{"specversion":"1.0","id":"' + context.encode() + b"/"
        self._kinds: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        self._actors: dict[str, bytes] = {}
        self._at_us = -1
        self._time = b""

    def encode(self, row: RawRow, *, most_bytes: int = LARGEST) -> bytes:
        """Encodes a row as JSON."""
        seq, kind, schema, key, at_us, actor, cause, correlation, data, digest = row
        begin, middle = self._kinds.get((kind, schema)) or self._learn(kind, schema)
        by = self._actors.get(actor) or self._actors.setdefault(actor, _text(actor))
        if at_us != self._at_us:
            self._at_us, self._time = at_us, time_text(at_us).encode()
        why = b"" if cause is None else b',"cause":' + _text(cause)
        correlation_part = b"" if correlation is None else b',"correlation":' + _text(correlation)
        about = b',"subject":' + _text(key) if key else b""
        number = b"%d" % seq
        payload = b'","data":' + data
        if len(data) + len(about) + ENVELOPE > most_bytes:
            payload = b'","dataref":"' + f"{READ}.{self._context}".encode() + b'"'
        return b"".join(
            (
                self._begin, number, begin, about, b',"time":"', self._time, middle, number, b'","actor":', by, why, correlation_part,
                b',"digest":"', digest.hex().encode(), payload, b"}",
            )
        )  # fmt: skip

    def message(self, row: RawRow) -> Outgoing:
        """Returns the message of a row."""
        return Outgoing(event_subject(self._context, row.type, row.key), self.encode(row), self.id(row.seq))

    def id(self, seq: int) -> str:
        """Returns the CloudEvent's id."""
        return f"{self._context}/{seq}"

    def _learn(self, kind: str, schema: int) -> tuple[bytes, bytes]:
        begin = b'","source":' + self._source + b',"type":' + _text(kind)
        middle = b'","datacontenttype":"application/json","schema":%d,"seq":"' % schema
        return self._kinds.setdefault((kind, schema), (begin, middle))


class EventIdentity(msgspec.Struct):
    """The fields of a CloudEvent that identify the event of the log."""

    id: str
    digest: str

    @property
    def seq(self) -> int:
        """The seq in its id; -1 when there is none."""
        number = self.id.rpartition("/")[2]
        return int(number) if number.isdecimal() else -1


decode_identity = msgspec.json.Decoder(EventIdentity).decode


def time_text(at_us: int) -> str:
    """Formats an instant as RFC 3339 in UTC, always with six digits: a digest covers microseconds."""
    seconds, us = divmod(at_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{us:06d}Z"
