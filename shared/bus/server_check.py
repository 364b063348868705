"""What a NATS server says of itself to this login, for people. Services use `Bus`; this is one look with one connection."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client

from shared.bus.bus import abandon
from shared.bus.login import DENIED, Login
from shared.errors import KoordError

CONNECTING_S = 3
STREAM_S = 1.0


class BusUnreachable(KoordError):
    """Nothing that speaks NATS answers there."""


class BusRefused(KoordError):
    """The server answers and does not let this login in."""


class Server(NamedTuple):
    """A NATS server.

    Attributes:
        max_payload: bytes of the largest message that it takes.
        jetstream: whether it keeps streams.
        authenticated: whether it asks who its clients are.
        encrypted: whether this connection is.
        refused: of the subjects that were tried, those that this login may not hear.
        ahead_s: how far its clock is ahead of this machine's, up to half of the round trip either way; None when no stream told.
    """

    version: str
    name: str
    max_payload: int
    jetstream: bool
    authenticated: bool
    encrypted: bool
    round_trip_s: float
    refused: tuple[str, ...]
    ahead_s: float | None


async def look(login: Login, hears: Sequence[str] = (), stream: str = "") -> Server:
    """Connects once, try to subscribe, and go.

    Args:
        hears: subjects to try.
        stream: one whose description this login may ask for: it has the server's time on it.

    Raises:
        BadLogin: a file of the login cannot be used.
        BusUnreachable: no server, or none that speaks NATS.
        BusRefused: the login is not accepted.
    """
    said: list[str] = []

    async def on_error(error: Exception) -> None:
        said.append(str(error) or type(error).__name__)

    client, url = Client(), login.server
    options = login.options()
    try:
        await client.connect(
            url,
            **options,
            name="koord command",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # of the first connection, too; by default the client tries for two minutes
            reconnect_time_wait=0,
            connect_timeout=CONNECTING_S,
            error_cb=on_error,
        )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        await abandon(client)
        reason = next((text for text in (*said, str(error)) if "uthoriz" in text or "uthentic" in text), "")
        if reason:
            raise BusRefused(f"NATS at {url} refuses {login.user or 'a client without a login'}: {reason}") from error
        reason = said[0] if said else str(error) or type(error).__name__
        raise BusUnreachable(f"NATS at {url} cannot be reached: {reason}") from error
    try:
        said.clear()
        for subject in hears:
            await client.subscribe(subject)
        await client.flush(CONNECTING_S)
        started = time.monotonic()
        await client.flush(CONNECTING_S)
        round_trip_s = time.monotonic() - started
        denied = {match[2] for text in said if (match := DENIED.search(text.lower()))}
        # The client keeps the server's greeting to itself, but for the parts that it acts on.
        greeting = client._server_info  # noqa: SLF001
        return Server(
            version=str(greeting.get("version", "")),
            name=str(greeting.get("server_name", "")),
            max_payload=client.max_payload,
            jetstream=bool(greeting.get("jetstream")),
            authenticated=bool(greeting.get("auth_required")),
            encrypted="tls" in options,
            round_trip_s=round_trip_s,
            refused=tuple(subject for subject in hears if subject.lower() in denied),
            ahead_s=await _clock(client, stream) if stream and greeting.get("jetstream") else None,
        )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise BusUnreachable(f"NATS at {url} was lost: {str(error) or type(error).__name__}") from error
    finally:
        await client.close()


class _Described(msgspec.Struct):
    """The part of a stream's description that every server of 2.10 and later gives."""

    ts: datetime | None = None


async def _clock(client: Client, stream: str) -> float | None:
    """How far the server's clock is ahead of this machine's; None when it does not say."""
    asked = time.time()
    try:
        answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=STREAM_S)
        ts = msgspec.json.decode(answer.data, type=_Described).ts
    except (nats.errors.Error, OSError, TimeoutError, msgspec.DecodeError):
        return None
    return ts.timestamp() - (asked + time.time()) / 2 if ts else None
