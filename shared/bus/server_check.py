"""State of a NATS server as this login sees it, for people.

Services use `Bus`; this is one check over one connection.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client

from shared.bus.bus import abandon
from shared.bus.login import DENIED, Login
from shared.bus.unusable_bus import bus_remedy
from shared.errors import KoordError, fault_of

CONNECTING_S = 3
STREAM_S = 1.0


class BusUnreachable(KoordError):
    """No server responds there, or none that speaks NATS.

    Attributes:
        remedy: what to do.
    """

    def __init__(self, what: str, reason: str) -> None:
        self.remedy = bus_remedy(reason)
        super().__init__(f"{what}: {reason}")


class BusRefused(KoordError):
    """The server responds and rejects this login."""


class Server(NamedTuple):
    """A NATS server.

    Attributes:
        max_payload: bytes of the largest message that it takes.
        jetstream: whether it keeps streams.
        authenticated: whether it requires logins.
        encrypted: whether this connection is.
        refused: of the subjects that were tried, those that this login may not subscribe to.
        ahead_s: how far its clock is ahead of this machine's, up to half of the round trip either way; None when no
            stream reported a time.
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


async def look(login: Login, subjects: Sequence[str] = (), stream: str = "") -> Server:
    """Connects once, tries to subscribe, and disconnects.

    Args:
        subjects: subjects to try.
        stream: one whose description this login may request: it carries the server's time.

    Raises:
        BadLogin: a file of the login cannot be used.
        BusUnreachable: no server, or none that speaks NATS.
        BusRefused: the login is not accepted.
    """
    errors: list[str] = []
    refusal = asyncio.Event()

    async def on_error(error: Exception) -> None:
        errors.append(fault_of(error))
        refusal.set()

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
        reason = next((text for text in (*errors, str(error)) if "uthoriz" in text or "uthentic" in text), "")
        if reason:
            raise BusRefused(f"NATS at {url} refuses {login.user or 'a client without a login'}: {reason}") from error
        reason = next(filter(None, errors), "") or fault_of(error)
        raise BusUnreachable(f"NATS at {url} cannot be reached", reason) from error
    try:
        errors.clear()
        for subject in subjects:
            await client.subscribe(subject)
        await client.flush(CONNECTING_S)
        started = time.monotonic()
        await client.flush(CONNECTING_S)
        round_trip_s = time.monotonic() - started
        refusal.clear()
        denied = {match[2] for text in errors if (match := DENIED.search(text.lower()))}
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
            refused=tuple(subject for subject in subjects if subject.lower() in denied),
            ahead_s=await _clock(client, stream, refusal) if stream and greeting.get("jetstream") else None,
        )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise BusUnreachable(f"NATS at {url} was lost", fault_of(error)) from error
    finally:
        await client.close()


class _Described(msgspec.Struct):
    """The part of a stream's description that every server of 2.10 and later gives."""

    ts: datetime | None = None


async def _clock(client: Client, stream: str, refusal: asyncio.Event) -> float | None:
    """Returns how far the server's clock is ahead of this machine's; None when it reports no time.

    A login that may not request it gets an error of the connection instead of a response: that ends the wait.
    """
    sent = time.time()
    request = asyncio.create_task(client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=STREAM_S))
    refused = asyncio.create_task(refusal.wait())
    try:
        done, _ = await asyncio.wait((request, refused), return_when=asyncio.FIRST_COMPLETED)
        if request not in done:
            return None
        ts = msgspec.json.decode(request.result().data, type=_Described).ts
    except (nats.errors.Error, OSError, TimeoutError, msgspec.DecodeError):
        return None
    finally:
        request.cancel()
        refused.cancel()
    return ts.timestamp() - (sent + time.time()) / 2 if ts else None
