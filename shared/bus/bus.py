"""Publish, subscribe, ask and answer over core NATS, on one connection that mends itself.

A server that restarts can leave subscriptions silent although the connection looks alive. So the wrapper hears itself:
each second it publishes to a subject of its own, and when nothing has come back for three seconds it drops the connection,
connects anew and subscribes again. While the server is away publishing does nothing: whoever needs an event reads Postgres.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.errors import KoordError

log = logging.getLogger(__name__)

ECHO_EVERY_S = 1.0
SILENT_AFTER_S = 3.0
PENDING_MESSAGES = 65_536
PENDING_BYTES = 256 * 1024 * 1024

Heard = Callable[[bytes], None]
Answer = Callable[[bytes], Awaitable[bytes]]


class NoAnswer(KoordError):
    """Nobody answered a question within its deadline."""

    def __init__(self, subject: str, deadline_s: float) -> None:
        super().__init__(
            f"no answer on {subject} within {deadline_s:g} s; see whether the service that answers it runs (koord up) "
            "and whether NATS is reachable (KOORD_NATS)"
        )


class Bus:
    """One process's connection to NATS.

    Callbacks run on the event loop and must not block; a callback that raises is logged and the message dropped.
    Messages beyond the pending bounds are dropped by the client and counted in `dropped`: followers see the gap.
    """

    def __init__(self, url: str, *, name: str) -> None:
        self.dropped = 0
        self.reconnects = 0
        self._url = url
        self._name = name
        self._client: Client | None = None
        self._heard: list[tuple[str, Heard]] = []
        self._answers: list[tuple[str, Answer]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._echo_at = 0.0
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether the server was heard within the last seconds."""
        client = self._client
        return client is not None and client.is_connected and time.monotonic() - self._echo_at < SILENT_AFTER_S

    async def start(self) -> None:
        """Connect in the background and keep connected; returns at once, or after the first connection if it is quick."""
        first = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep(first), name="bus")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first.wait(), 2)

    async def close(self) -> None:
        """Send what is pending, then end the connection."""
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for task in self._answering:
            task.cancel()
        if self._client and self._client.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await asyncio.wait_for(self._client.flush(), 1)
        await self._drop()

    async def publish(self, subject: str, data: bytes) -> bool:
        """Send a message if connected; whether it was handed to the client.

        Waits while the client's buffer is full, which is the back-pressure: a writer never outruns the server.
        """
        client = self._client
        if client is None or not client.is_connected:
            return False
        try:
            await client.publish(subject, data)
        except (nats.errors.Error, OSError):
            return False
        return True

    async def hear(self, subject: str, heard: Heard) -> None:
        """Call `heard` with every message on a subject (wildcards allowed), on this connection and every later one."""
        self._heard.append((subject, heard))
        if self._client and self._client.is_connected:
            await self._subscribe(self._client, subject, heard)

    async def answer(self, subject: str, answer: Answer) -> None:
        """Answer questions on a subject; of several replicas one answers."""
        self._answers.append((subject, answer))
        if self._client and self._client.is_connected:
            await self._serve(self._client, subject, answer)

    async def ask(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        """Ask a question.

        Raises:
            NoAnswer: nobody answered within the deadline.
        """
        ends = time.monotonic() + deadline_s
        while (left := ends - time.monotonic()) > 0:
            client = self._client
            if client is not None and client.is_connected:
                try:
                    return (await client.request(subject, data, timeout=left)).data
                except nats.errors.NoRespondersError:
                    pass  # the service may be starting; ask again until the deadline
                except (nats.errors.Error, OSError, TimeoutError):
                    break
            await asyncio.sleep(min(0.05, left))
        raise NoAnswer(subject, deadline_s)

    async def _keep(self, first: asyncio.Event) -> None:
        """Connect, listen to the echo, and start over whenever it stays away."""
        pause = 0.05
        while True:
            try:
                self._client = await self._connect()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.warning("bus is not reachable", extra={"url": self._url, "error": str(error), "next_try_s": pause})
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
                continue
            pause = 0.05
            first.set()
            await self._echo(self._client)
            self.reconnects += 1
            await self._drop()

    async def _connect(self) -> Client:
        client = await nats.connect(
            self._url,
            name=self._name,
            allow_reconnect=False,  # the keeper reconnects: it also notices a connection that is only half alive
            connect_timeout=2,
            max_outstanding_pings=2,
            ping_interval=5,
            error_cb=self._on_error,
            pending_size=8 * 1024 * 1024,
        )
        self._echo_at = time.monotonic()
        for subject, heard in self._heard:
            await self._subscribe(client, subject, heard)
        for subject, answer in self._answers:
            await self._serve(client, subject, answer)
        return client

    async def _echo(self, client: Client) -> None:
        """Return when the connection has been silent for too long."""
        subject = client.new_inbox()

        async def echoed(_message: Msg) -> None:
            self._echo_at = time.monotonic()

        try:
            await client.subscribe(subject, cb=echoed)
            while client.is_connected and time.monotonic() - self._echo_at < SILENT_AFTER_S:
                await client.publish(subject, b"")
                await asyncio.sleep(ECHO_EVERY_S)
        except (nats.errors.Error, OSError) as error:
            log.warning("bus connection failed", extra={"error": str(error)})

    async def _subscribe(self, client: Client, subject: str, heard: Heard) -> Subscription:
        async def on_message(message: Msg) -> None:
            heard(message.data)

        return await client.subscribe(
            subject, cb=on_message, pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES
        )

    async def _serve(self, client: Client, subject: str, answer: Answer) -> None:
        async def respond(message: Msg) -> None:
            reply = await answer(message.data)
            with contextlib.suppress(nats.errors.Error, OSError):
                await message.respond(reply)

        async def on_message(message: Msg) -> None:
            task = asyncio.create_task(respond(message))  # one slow answer does not hold up the next
            self._answering.add(task)
            task.add_done_callback(self._answered)

        await client.subscribe(subject, queue="answers", cb=on_message)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a question could not be answered", exc_info=error)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1
        log.warning("bus error", extra={"error": repr(error)})

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), 1)
