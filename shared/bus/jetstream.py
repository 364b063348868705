"""JetStream on the connection of the bus: creates streams, reads them, and publishes with acknowledgement.

Nothing inside the system depends on a stream: streams are for outside programs, and for agents that need the last
message of a subject. Each call uses the current connection; a call that finds none, or loses it, raises
`StreamsUnreachable` and may be repeated.

A chain of messages needs one acknowledgement: each names the message before it, and the server stores it only after
that one. When the last is stored, all of them are, in their order and with nothing between.
"""

import asyncio
import base64
import re
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.bus import Bus
from shared.errors import KoordError

DEADLINE_S = 5.0
POLL_INTERVAL_S = 0.25
AT_ONCE = 256
"""Messages of `publish_all` whose acknowledgements are awaited together."""

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_ID = "Nats-Expected-Last-Msg-Id"
EXPECTED_SEQ = "Nats-Expected-Last-Sequence"

_PLAIN = re.compile(r"[^\s\x00-\x1f\x7f]+").fullmatch

_NO_STREAM = 10059
_NO_MESSAGE = 10037
_LOST = (nats.errors.Error, OSError, TimeoutError)


class StreamsUnreachable(KoordError):
    """There is no connection, it broke, or the server does not respond; whether something was stored is not known."""

    def __init__(self, about: str, reason: object) -> None:
        super().__init__(f"{about}: {reason}; see whether NATS is reachable (KOORD_NATS) and runs with JetStream")


class StreamRefused(KoordError):
    """The server responds with an error.

    Attributes:
        number: JetStream's own number of the reason.
    """

    def __init__(self, about: str, number: int, description: str) -> None:
        super().__init__(f"{about}: {description} (JetStream {number})")
        self.number = number


class BadSubject(KoordError):
    """A subject or an id with white space or control characters."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject!r} is no subject of a message, or its id is none")


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a stream, by the names that JetStream gives its fields.

    Attributes:
        max_age, duplicate_window: nanoseconds; no bound when `max_age` is 0.
        max_bytes, max_msgs_per_subject: no bound when -1; beyond a bound the oldest messages are removed.
        allow_direct: any replica serves a read of one message.
    """

    name: str
    subjects: tuple[str, ...]
    description: str = ""
    max_age: int = 0
    max_bytes: int = -1
    max_msgs_per_subject: int = -1
    duplicate_window: int = 100_000_000
    num_replicas: int = 1
    retention: str = "limits"
    storage: str = "file"
    discard: str = "old"
    allow_direct: bool = True


class StreamState(msgspec.Struct, frozen=True):
    """Contents of a stream; its seqs are its own and go on after a purge.

    Attributes:
        num_deleted: messages removed between the first and the last.
    """

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    num_deleted: int = 0


class Stored(NamedTuple):
    """A message as a stream holds it."""

    subject: str
    seq: int
    data: bytes
    headers: Mapping[str, str]


class Outgoing(NamedTuple):
    """A message to store; a chain requires `id`."""

    subject: str
    data: bytes
    id: str = ""


class _Error(msgspec.Struct):
    code: int
    description: str = ""
    err_code: int = 0


class _Answer(msgspec.Struct):
    error: _Error | None = None
    state: StreamState | None = None
    config: dict[str, Any] = {}
    seq: int = 0
    duplicate: bool = False


class _Message(msgspec.Struct):
    subject: str
    seq: int
    data: str = ""
    hdrs: str = ""


class _Got(msgspec.Struct):
    error: _Error | None = None
    message: _Message | None = None


class Streams:
    """The streams of a connection."""

    def __init__(self, bus: Bus, *, deadline_s: float = DEADLINE_S) -> None:
        self._bus = bus
        self._deadline_s = deadline_s
        self._acks: _Acks | None = None

    async def ensure(self, config: StreamConfig) -> StreamState:
        """Creates a stream, or gives an existing one this configuration; its messages stay, within its new bounds."""
        found = await self._api(f"STREAM.INFO.{config.name}", b"")
        if _is(found.error, _NO_STREAM):
            found = await self._api(f"STREAM.CREATE.{config.name}", _encode(config))
        elif found.error is None and not _agrees(found.config, config):
            found = await self._api(f"STREAM.UPDATE.{config.name}", _encode(config))
        return _state(config.name, found)

    async def state(self, name: str) -> StreamState | None:
        """Returns the contents of a stream; None when there is no such stream."""
        found = await self._api(f"STREAM.INFO.{name}", b"")
        return None if _is(found.error, _NO_STREAM) else _state(name, found)

    async def last(self, name: str, subject: str = ">") -> Stored | None:
        """Returns the last message of a stream, or of a subject in it (wildcards allowed); None when it has none."""
        return await self._get(name, {"last_by_subj": subject})

    async def get(self, name: str, seq: int) -> Stored | None:
        """Returns the message at a seq of the stream; None when it is not there."""
        return await self._get(name, {"seq": seq})

    async def purge(self, name: str, subject: str = "") -> None:
        """Removes all messages, or those of a subject. The stream and its consumers stay.

        The ids of the removed messages are refused as repeats for another `duplicate_window`.
        """
        about = {"filter": subject} if subject else {}
        _raise(name, (await self._api(f"STREAM.PURGE.{name}", _encode(about))).error)

    async def delete(self, name: str) -> None:
        """Removes a stream with its consumers; nothing happens when there is none."""
        found = await self._api(f"STREAM.DELETE.{name}", b"")
        if not _is(found.error, _NO_STREAM):
            _raise(name, found.error)

    async def publish(self, subject: str, data: bytes) -> int:
        """Stores one message. Returns its seq in the stream."""
        return await self._stored(self._client(subject), Outgoing(subject, data), None)

    async def publish_all(self, messages: Iterable[Outgoing]) -> None:
        """Stores messages that need not follow each other; returns when all of them are stored."""
        waiting: list[Outgoing] = []
        for message in messages:
            waiting.append(message)
            if len(waiting) == AT_ONCE:
                await self._store_together(waiting)
                waiting = []
        await self._store_together(waiting)

    async def publish_chain(
        self, messages: Sequence[Outgoing], *, last_id: str = "", last_seq: int | None = None
    ) -> Coroutine[Any, Any, int]:
        """Sends messages that are stored one after the other, the first after the stream's last.

        When it returns, the next link of the chain may be sent. Its result is a coroutine that waits until the messages
        are stored, and returns the seq of the last.

        Args:
            last_id: id of the stream's last message, or of the last one that was sent.
            last_seq: its seq instead, for a stream that is empty or was just read.

        Raises:
            StreamRefused: (when awaited) something else is the stream's last: a hole, or another publisher. Nothing
            after the break of a chain is stored.
            StreamsUnreachable: see the class.
        """
        about = messages[-1].subject
        client = self._client(about)
        try:
            if self._acks is None or self._acks.client is not client:
                self._acks = _Acks(client)
                await self._acks.listen()
            reply, stored = self._acks.expect()
            behind = f"{EXPECTED_ID}: {last_id}" if last_seq is None else f"{EXPECTED_SEQ}: {last_seq}"
            # As one text of the protocol: sent message by message, the client would cost more than all else on an
            # event's path.
            await client._send_command(_protocol(messages, behind, reply, client.max_payload))  # noqa: SLF001
            await client._flush_pending()  # noqa: SLF001
        except _LOST as error:
            raise StreamsUnreachable(about, repr(error)) from error
        return self._stored_by(client, about, stored)

    def _client(self, about: str) -> Client:
        client = self._bus.connection
        if client is None:
            raise StreamsUnreachable(about, "not connected")
        return client

    async def _request(self, client: Client, subject: str, data: bytes, headers: dict[str, str] | None = None) -> Any:
        try:
            return await client.request(subject, data, timeout=self._deadline_s, headers=headers)
        except _LOST as error:
            raise StreamsUnreachable(subject, repr(error)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StreamsUnreachable(subject, "the connection closed") from error

    async def _api(self, call: str, data: bytes) -> _Answer:
        subject = f"$JS.API.{call}"
        answer = await self._request(self._client(subject), subject, data)
        return _decode(answer.data)

    async def _get(self, name: str, about: dict[str, Any]) -> Stored | None:
        subject = f"$JS.API.STREAM.MSG.GET.{name}"
        got = _decode_got((await self._request(self._client(subject), subject, _encode(about))).data)
        if _is(got.error, _NO_MESSAGE):
            return None
        _raise(name, got.error)
        assert got.message is not None
        message = got.message
        return Stored(message.subject, message.seq, base64.b64decode(message.data), _headers(message.hdrs))

    async def _store_together(self, messages: Sequence[Outgoing]) -> None:
        if messages:
            client = self._client(messages[0].subject)
            await asyncio.gather(
                *(self._stored(client, one, {MESSAGE_ID: one.id} if one.id else None) for one in messages)
            )

    async def _stored_by(self, client: Client, about: str, stored: "asyncio.Future[bytes]") -> int:
        ends = time.monotonic() + self._deadline_s
        while not stored.done():
            if not client.is_connected or time.monotonic() > ends:
                raise StreamsUnreachable(about, "no acknowledgement within the deadline")
            await asyncio.wait({stored}, timeout=POLL_INTERVAL_S)
        answer = _decode(stored.result())
        _raise(about, answer.error)
        if answer.duplicate:
            raise StreamRefused(about, 0, "the server has stored that id within the last moments")
        return answer.seq

    async def _stored(self, client: Client, message: Outgoing, headers: dict[str, str] | None) -> int:
        answer = _decode((await self._request(client, message.subject, message.data, headers)).data)
        _raise(message.subject, answer.error)
        return answer.seq


class _Acks:
    """Acknowledgements of chains on one connection: one subscription for all of them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._inbox = client.new_inbox()
        self._numbers = count()
        self._expected: dict[str, asyncio.Future[bytes]] = {}

    async def listen(self) -> None:
        await self.client.subscribe(f"{self._inbox}.*", cb=self._arrived)

    def expect(self) -> tuple[str, "asyncio.Future[bytes]"]:
        """Returns a subject for one acknowledgement, and a future for its arrival."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        self._expected[reply] = future = asyncio.get_running_loop().create_future()
        return reply, future

    async def _arrived(self, message: Msg) -> None:
        future = self._expected.pop(message.subject, None)
        if future is None or future.done():
            return
        if message.data:
            future.set_result(message.data)
        else:  # an empty message: no stream stores this subject
            future.set_result(
                _encode({"error": {"code": 503, "err_code": 0, "description": "there is no such stream"}})
            )


def _protocol(messages: Sequence[Outgoing], behind: str, reply: str, most_bytes: int) -> bytes:
    """Returns the commands that publish a chain; only the last message requests an acknowledgement.

    Raises:
        StreamRefused: a message is larger than the server takes.
        BadSubject: a subject or an id would be read as another command.
    """
    parts: list[bytes] = []
    end = len(messages) - 1
    for number, (subject, data, identity) in enumerate(messages):
        if not _PLAIN(subject) or not _PLAIN(identity):
            raise BadSubject(subject)
        headers = f"NATS/1.0\r\n{MESSAGE_ID}: {identity}\r\n{behind}\r\n\r\n".encode()
        size = len(headers) + len(data)
        if size > most_bytes:
            raise StreamRefused(subject, 0, f"a message of {size} bytes is larger than the server takes")
        to = f"{subject} {reply}" if number == end else subject
        parts += (f"HPUB {to} {len(headers)} {size}\r\n".encode(), headers, data, b"\r\n")
        behind = f"{EXPECTED_ID}: {identity}"
    return b"".join(parts)


def _headers(encoded: str) -> dict[str, str]:
    """Decodes the headers of a stored message: base64 of their text, a status line first."""
    lines = base64.b64decode(encoded).decode().split("\r\n")[1:]
    return {name.strip(): value.strip() for name, found, value in (line.partition(":") for line in lines) if found}


def _agrees(found: Mapping[str, Any], desired: StreamConfig) -> bool:
    """Reports whether a stream has the configuration already; the server has more fields, and omits empty ones."""
    return all(found.get(name, value if not value else None) == value for name, value in _plain(desired).items())


def _plain(config: StreamConfig) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(config)
    return plain | {"subjects": list(config.subjects)}


def _is(error: _Error | None, number: int) -> bool:
    return error is not None and error.err_code == number


def _raise(about: str, error: _Error | None) -> None:
    if error is not None:
        raise StreamRefused(about, error.err_code, error.description)


def _state(name: str, found: _Answer) -> StreamState:
    _raise(name, found.error)
    assert found.state is not None
    return found.state


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Answer).decode
_decode_got = msgspec.json.Decoder(_Got).decode
