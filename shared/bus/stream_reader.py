"""Reads a whole stream in order, as an outside program would: with a pull consumer of its own, a batch at a time."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import nats.errors
from nats.aio.msg import Msg

from shared.bus.bus import Bus
from shared.bus.jetstream import StreamRefused, StreamsUnreachable

BATCH = 2_000
"""Messages requested at once; the next batch is requested when half of it has arrived."""
EXPIRES_S = 5


class _Made(msgspec.Struct):
    name: str = ""
    error: dict[str, str | int] | None = None


async def messages(bus: Bus, stream: str) -> AsyncIterator[bytes]:
    """Yields the data of every message of a stream from its first on, without an end.

    The consumer needs no acknowledgements and is removed when it was not read for a while.

    Raises:
        StreamsUnreachable: there is no connection.
        StreamRefused: there is no such stream.
    """
    client = bus.connection
    if client is None:
        raise StreamsUnreachable(stream, "not connected")
    config = {"ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 30_000_000_000}
    about = msgspec.json.encode({"stream_name": stream, "config": config})
    try:
        answer = await client.request(f"$JS.API.CONSUMER.CREATE.{stream}", about, timeout=EXPIRES_S)
        made = msgspec.json.decode(answer.data, type=_Made)
        if made.error is not None:
            raise StreamRefused(stream, 0, str(made.error))
        inbox = client.new_inbox()
        arrived: asyncio.Queue[Msg] = asyncio.Queue()
        await client.subscribe(inbox, cb=arrived.put)
        pull = msgspec.json.encode({"batch": BATCH, "expires": EXPIRES_S * 1_000_000_000})
        outstanding = 0
        while True:
            if outstanding <= BATCH // 2:
                await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made.name}", pull, reply=inbox)
                outstanding += BATCH
            message = await arrived.get()
            if message.headers and "Status" in message.headers:  # the batch ended before it was full
                outstanding -= int(message.headers.get("Nats-Pending-Messages", outstanding))
                continue
            outstanding -= 1
            yield message.data
    except (nats.errors.Error, OSError) as error:
        raise StreamsUnreachable(stream, repr(error)) from error
