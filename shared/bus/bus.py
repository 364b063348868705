"""Publishing, subscribing, requests and responses over core NATS, on one connection that repairs itself.

A server that restarts can leave subscriptions silent although the connection looks alive. The wrapper therefore checks
with an echo: each second it publishes to a subject of its own, and when nothing has come back for three seconds it
closes the connection, connects again and renews the subscriptions. While the server is away, publishing does nothing: a
reader that needs an event reads Postgres.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.login import DENIED, Login
from shared.bus.request import FAILURES, NoResponse, NotPermitted, Request, replies_to_inbox
from shared.runtime.task_cancellation import cancel_and_wait
from shared.unreachable import ServerContact, Unreachable

log = logging.getLogger(__name__)

NOT_REACHABLE = "bus is not reachable"
NOT_PERMITTED = "the bus does not permit a subject"
"""Line about a subject that the login may not use."""

ECHO_INTERVAL_S = 1.0
SILENT_INTERVALS = 3  # so many without an echo, in a row, until a connection is given up
UNSENT_BYTES = 8 * 1024 * 1024
"""Bytes that may wait for the server before a publisher waits too."""
PUBLISH_WAITS_S = 0.5
PENDING_MESSAGES = 65_536
PENDING_BYTES = 64 * 1024 * 1024

Receive = Callable[[bytes], None]
Respond = Callable[[bytes], Awaitable[bytes]]
RespondOn = Callable[[str, bytes], Awaitable[bytes]]


class Bus:
    """The connection of one process to NATS.

    Callbacks run on the event loop and must not block; a callback that raises is logged and the message dropped.

    Attributes:
        dropped: received messages beyond the pending bounds, which the client discarded; followers detect the gap.
        unsent: messages discarded because the server accepted nothing for `PUBLISH_WAITS_S`.
        reconnects: connections lost since the start.
        refused: the newest refusal by the server: the login, or a subject it may not use; empty without one.
        violations: how often the server refused a subject.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        pending_messages: int = PENDING_MESSAGES,
        nkey: str = "",
        ca: str = "",
        echo_interval_s: float = ECHO_INTERVAL_S,
        logger: logging.Logger = log,
    ) -> None:
        self.dropped = 0
        self.unsent = 0
        self.reconnects = 0
        self.refused = ""
        self.violations = 0
        self.login = Login.of(url, nkey=nkey, ca=ca)
        self._contact = ServerContact(f"NATS at {self.login.server}")
        self._login_refused = False
        self._failure: Exception | None = None  # the newest failure of the connection attempt
        self._denied: set[str] = set()
        self._requests: dict[str, set[asyncio.Task[Msg]]] = {}
        self._log = logger
        self._name = name
        self._echo_interval_s = echo_interval_s
        self._pending_messages = pending_messages
        self._client: Client | None = None
        self._subscriptions: list[Callable[[Client], Awaitable[None]]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._silent_intervals = 0
        self._responding: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Reports that there is a connection and that the echo has not stayed away for `SILENT_INTERVALS`."""
        return self._connection() is not None and self._silent_intervals < SILENT_INTERVALS

    @property
    def unreachable(self) -> Unreachable | None:
        """Returns since when and why there is no connection; None while there is one."""
        return self._contact.unreachable

    @property
    def connection(self) -> Client | None:
        """The current connection, for JetStream (`jetstream`); None while there is none."""
        return self._connection()

    async def start(self) -> None:
        """Connects in the background and keeps connected. Returns at once, or after the first connection if it is
        quick.

        Raises:
            BadLogin: the NKEY's or the authority's file cannot be used.
        """
        self.login.options()
        first = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep(first), name="bus")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await first.wait()

    async def close(self) -> None:
        """Sends the pending messages, then ends the connection."""
        if client := self._connection():
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(1):
                    await client.flush()
        await cancel_and_wait(*filter(None, (self._keeper, *self._responding)))

    async def publish(self, subject: str, data: bytes) -> bool:
        """Sends a message if connected. Returns whether it was handed to the client.

        Waits while the server is slower than its publishers, which is the back-pressure, but never for long: a server
        that hangs must not hold up a writer.
        """
        client = self._connection()
        if client is not None and client.pending_data_size > UNSENT_BYTES:
            client = await self._with_room(client)
        if client is None:
            return False
        try:
            await client.publish(subject, data)
        except FAILURES:
            return False
        return True

    async def subscribe(self, subject: str, receive: Receive) -> None:
        """Calls `receive` with every message on a subject (wildcards allowed), on this connection and every later one."""

        async def on_message(message: Msg) -> None:
            receive(message.data)

        async def subscribe(client: Client) -> None:
            await client.subscribe(
                subject, cb=on_message, pending_msgs_limit=self._pending_messages, pending_bytes_limit=PENDING_BYTES
            )

        await self._subscribe(subscribe)

    async def respond(self, subject: str, respond: Respond) -> None:
        """Responds to requests on a subject. Of several replicas, one responds."""
        await self.respond_on(subject, lambda _subject, data: respond(data))

    async def respond_on(self, subject: str, respond: RespondOn) -> None:
        """Responds to requests on a subject with wildcards; `respond` gets the subject of each request."""

        async def reply_to(message: Msg) -> None:
            if not replies_to_inbox(message):
                return
            reply = await respond(message.subject, message.data)
            with contextlib.suppress(*FAILURES):
                await message.respond(reply)

        async def on_message(message: Msg) -> None:
            task = asyncio.create_task(reply_to(message))  # one slow response does not hold up the next
            self._responding.add(task)
            task.add_done_callback(self._responded)

        async def subscribe(client: Client) -> None:
            await client.subscribe(subject, queue="answers", cb=on_message)

        await self._subscribe(subscribe)

    async def handle(self, subject: str, handle: Callable[[Request], Awaitable[None]]) -> None:
        """Passes every request on a subject (wildcards allowed) to `handle`. Unlike with `respond`, each subscribed
        process gets each request.

        A process that is not responsible for a request ignores it. The next request waits until `handle` returns, not
        until the response is sent. A message without a reply subject is no request and is ignored.
        """

        async def on_message(message: Msg) -> None:
            if message.reply and replies_to_inbox(message):
                await handle(Request(message))

        async def subscribe(client: Client) -> None:
            await client.subscribe(
                subject, cb=on_message, pending_msgs_limit=self._pending_messages, pending_bytes_limit=PENDING_BYTES
            )

        await self._subscribe(subscribe)

    async def request(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        """Sends a request and returns the response. Repeats it while no service is subscribed to the subject, never
        once it was delivered.

        Raises:
            NoResponse: no response within the deadline.
            NotPermitted: the server refuses the login, or the login this subject.
        """
        ends = time.monotonic() + deadline_s
        while (left := ends - time.monotonic()) > 0:
            if self._login_refused:
                raise NotPermitted(self.login.user, f"in: {self.refused}")
            if client := self._connection():
                try:
                    return await self._send_request(client, subject, data, left)
                except nats.errors.NoRespondersError:
                    pass  # the service may be starting
                except FAILURES:
                    break
            await asyncio.sleep(min(0.05, left))
        raise NoResponse(subject, deadline_s)

    async def _send_request(self, client: Client, subject: str, data: bytes, deadline_s: float) -> bytes:
        """Sends one request.

        The server reports a refused subject apart from responses: `_on_error` then ends the wait.
        """
        response = asyncio.ensure_future(client.request(subject, data, timeout=deadline_s))
        together = self._requests.setdefault(subject.lower(), set())
        together.add(response)
        try:
            return (await response).data
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            if subject.lower() in self._denied:
                raise NotPermitted(self.login.user, f"publish on {subject}") from error
            raise nats.errors.ConnectionClosedError from error  # a client that closes cancels the waits for responses
        finally:
            together.discard(response)
            if not together:
                self._requests.pop(subject.lower(), None)

    def _connection(self) -> Client | None:
        return self._client if self._client is not None and self._client.is_connected else None

    async def _with_room(self, client: Client) -> Client | None:
        """Returns the connection once it takes data again; None when it does not within the time that a writer may
        lose.
        """
        ends = time.monotonic() + PUBLISH_WAITS_S
        while time.monotonic() < ends and client.is_connected:
            await asyncio.sleep(0.005)
            if client.pending_data_size <= UNSENT_BYTES:
                return client
        self.unsent += 1
        return None

    async def _subscribe(self, subscribe: Callable[[Client], Awaitable[None]]) -> None:
        self._subscriptions.append(subscribe)
        if client := self._connection():
            with contextlib.suppress(*FAILURES):  # the next connection subscribes
                await subscribe(client)

    async def _keep(self, first: asyncio.Event) -> None:
        """Connects, checks the echo, and starts over whenever it stays away."""
        pause = 0.05
        while True:
            client, gone = Client(), asyncio.Event()
            try:
                await self._connect(client, gone)
                pause = 0.05
                self._contact.reached()
                first.set()
                if self._login_refused:
                    self._login_refused, self.refused = False, ""
                await self._echo(client, gone)
                self._contact.failed("the connection was lost")
                self._log.warning("bus lost its connection", extra={"url": self.login.server})
                self.reconnects += 1
            except FAILURES as failed:
                error = self._failure if isinstance(failed, nats.errors.NoServersError) else failed
                self._contact.failed(str(error or failed) or "no response")
                self._login_refused = "authorization" in str(error).lower()
                if self._login_refused and not self.refused.startswith("the login"):
                    self.refused = f"the login {self.login.user!r} is refused by {self.login.server}"
                    self._log.error(
                        "the bus refuses the login", extra={"user": self.login.user, "url": self.login.server}
                    )
                elif pause < 0.1:  # logged once an outage
                    self._log.warning(NOT_REACHABLE, extra={"url": self.login.server, "error": repr(error)})
            finally:
                self._client = None
                await abandon(client)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def _connect(self, client: Client, gone: asyncio.Event) -> None:
        async def closed() -> None:
            gone.set()

        self._failure = None
        await client.connect(
            await self.login.addresses(),
            **self.login.options(),
            name=self._name,
            allow_reconnect=False,  # the keeper reconnects: it also notices a connection that is only half alive
            max_reconnect_attempts=1,  # of one connection; by default the client tries the same addresses for minutes
            reconnect_time_wait=0,
            dont_randomize=True,
            connect_timeout=2,
            max_outstanding_pings=2,
            ping_interval=5,
            error_cb=self._on_error,
            closed_cb=closed,
            pending_size=-1,  # `publish` bounds it; the client's own bound blocks for seconds and swallows cancellation
        )
        subscribed = 0
        while subscribed < len(self._subscriptions):
            await self._subscriptions[subscribed](client)
            subscribed += 1
        self._client = client  # no await since the list was checked: later entries subscribe themselves

    async def _echo(self, client: Client, gone: asyncio.Event) -> None:
        """Returns when the connection is closed or has been silent for too long.

        Counts intervals, not seconds: a process that did not run for a while has its echo waiting, and one that is
        behind reads it one interval later.
        """
        subject = client.new_inbox()

        async def echoed(_message: Msg) -> None:
            self._silent_intervals = 0

        self._silent_intervals = 0
        await client.subscribe(subject, cb=echoed)
        while not gone.is_set() and self._silent_intervals < SILENT_INTERVALS:
            await client.publish(subject, b"")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._echo_interval_s):
                    await gone.wait()
            self._silent_intervals += 1

    def _responded(self, task: "asyncio.Task[None]") -> None:
        self._responding.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._log.error("no response could be made to a request", exc_info=error)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # the first, second, fourth ...
                self._log.warning("bus drops messages that are not taken in time", extra={"dropped": self.dropped})
        elif violation := DENIED.search(str(error).lower()):
            self._deny(violation[1], violation[2])
        elif self._client is not None:
            self._log.warning("bus error", exc_info=error)
        else:  # `_keep` logs a failed connection
            self._failure = error

    def _deny(self, verb: str, subject: str) -> None:
        """Logs once for each subject that the login may not use it, and ends the requests that wait on it."""
        self.violations += 1
        self.refused = f"{self.login.user} may not {'publish on' if verb == 'publish' else 'subscribe to'} {subject}"
        if (denied := f"{verb} {subject}") not in self._denied:
            self._log.error(NOT_PERMITTED, extra={"user": self.login.user, "verb": verb, "subject": subject})
        self._denied |= {denied, subject} if verb == "publish" else {denied}
        for response in self._requests.get(subject, ()):
            response.cancel()


async def abandon(client: Client) -> None:
    """Ends a connection without waiting for a server that may take nothing more."""
    writer = getattr(client._transport, "_io_writer", None)  # noqa: SLF001  close() alone waits until all is sent
    if writer is not None:
        writer.transport.abort()
    client._pending.clear()  # noqa: SLF001
    client._pending_data_size = 0  # noqa: SLF001
    with contextlib.suppress(*FAILURES):
        await client.close()
