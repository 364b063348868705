"""The bus in memory: a broker, and the connection of each process with the interface of `shared.bus.Bus`.

A message takes a drawn time to each of its receivers, and a plan may lose, double, delay or reorder it on the way. A
process may be cut off from the broker in one direction or both. As on core NATS nothing is kept: a message without a
receiver is gone, and a request without one fails at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from cli.dev.fault_simulation.virtual_loop import Process
from shared.bus import Bus, NoResponse
from shared.bus.bus import Receive, Respond, RespondOn

RETRY_S = 0.05
"""Pause after which a request is sent again to a subject that nobody has subscribed to."""


class Faults(NamedTuple):
    """Probabilities of what may happen to a message, while a plan's step is in force."""

    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    delay_s: float = 0.0


class Subscription(NamedTuple):
    """A receiver of messages: calls `receive(subject, data, reply)` in its process."""

    process: Process
    pattern: tuple[str, ...]
    receive: Callable[[str, bytes, str], object]


class Broker:
    """The server.

    Attributes:
        up: False while it restarts.
        deaf, mute: processes that receive nothing from it, and whose messages do not arrive.
    """

    def __init__(self, seed: int) -> None:
        self.up = True
        self.faults = Faults()
        self.deaf: dict[Process, None] = {}
        self.mute: dict[Process, None] = {}
        self._random = random.Random(seed)  # noqa: S311
        self._subscriptions: list[Subscription] = []
        self._matching: dict[str, list[Subscription]] = {}
        self._inboxes: dict[str, Subscription] = {}
        self._arrives: dict[tuple[Process, int], float] = {}
        self._inbox_count = 0

    def subscribe(self, subscription: Subscription) -> None:
        """Adds a receiver."""
        self._subscriptions.append(subscription)
        self._matching.clear()

    def open_inbox(self, process: Process, receive: Callable[[str, bytes, str], object]) -> str:
        """Returns a subject for one response, which `receive` gets."""
        self._inbox_count += 1
        inbox = f"_INBOX.{self._inbox_count}"
        self._inboxes[inbox] = Subscription(process, (), receive)
        return inbox

    def close_inbox(self, inbox: str) -> None:
        """Ends the wait for a response."""
        self._inboxes.pop(inbox, None)

    def forget(self, process: Process) -> None:
        """Drops the subscriptions of a process that has ended."""
        self._subscriptions = [each for each in self._subscriptions if each.process is not process]
        self._matching.clear()

    def reachable(self, process: Process) -> bool:
        """Reports whether a process is connected in both directions."""
        return self.up and process not in self.deaf and process not in self.mute

    def publish(self, sender: Process, subject: str, data: bytes, reply: str = "") -> int:
        """Sends a message; returns the number of receivers."""
        if not self.up or sender in self.mute:
            return 0
        if subject.startswith("_INBOX."):
            inbox = self._inboxes.get(subject)
            found = [inbox] if inbox is not None else []
        elif (known := self._matching.get(subject)) is not None:
            found = known
        else:
            tokens = subject.split(".")
            found = [each for each in self._subscriptions if _matches(each.pattern, tokens)]
            self._matching[subject] = found
        for subscription in found:
            self._send(sender, subscription, subject, data, reply)
        return len(found)

    def _send(self, sender: Process, to: Subscription, subject: str, data: bytes, reply: str) -> None:
        draw, faults = self._random.random, self.faults
        delay_s = 0.0002 + draw() * 0.001
        copies = 1
        if faults is not NO_FAULTS:
            if draw() < faults.lost:
                return
            copies += draw() < faults.doubled
        loop = asyncio.get_running_loop()
        for _ in range(copies):
            arrives = loop.time() + delay_s
            if faults is not NO_FAULTS and draw() < faults.delayed:
                arrives += draw() * faults.delay_s  # overtaken by later ones
            else:  # those of one sender arrive in their order
                pair = (sender, id(to.process))
                arrives = self._arrives[pair] = max(arrives, self._arrives.get(pair, 0.0))
            loop.call_at(arrives, self._deliver, to, subject, data, reply, context=to.process.context)

    def _deliver(self, to: Subscription, subject: str, data: bytes, reply: str) -> None:
        if self.up and to.process not in self.deaf:
            to.receive(subject, data, reply)


NO_FAULTS = Faults()


def _matches(pattern: tuple[str, ...], tokens: list[str]) -> bool:
    if pattern[-1] == ">":
        return len(tokens) >= len(pattern) and _matches(pattern[:-1], tokens[: len(pattern) - 1])
    return len(pattern) == len(tokens) and all(
        part in ("*", token) for part, token in zip(pattern, tokens, strict=True)
    )


class MemoryRequest:
    """A message whose sender waits for a response; the interface of `shared.bus.Request`."""

    def __init__(self, broker: Broker, process: Process, subject: str, data: bytes, reply: str) -> None:
        self.subject = subject
        self.data = data
        self._broker = broker
        self._process = process
        self._reply = reply

    async def respond(self, data: bytes) -> None:
        """Responds."""
        self._broker.publish(self._process, self._reply, data)


class MemoryBus(Bus):
    """The connection of one process."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self.dropped = self.unsent = self.reconnects = self.violations = 0
        self.refused = ""
        self._broker = broker
        self._process = process
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def connected(self) -> bool:
        """Reports whether the broker is reached."""
        return self._broker.reachable(self._process)

    @property
    def connection(self) -> None:
        """There is no JetStream."""
        return

    async def start(self) -> None:
        """Returns at once."""

    async def close(self) -> None:
        """Ends the subscriptions."""
        self._broker.forget(self._process)

    async def publish(self, subject: str, data: bytes) -> bool:
        """Sends a message if connected."""
        if not self._broker.up:
            return False
        self._broker.publish(self._process, subject, data)
        return True

    async def subscribe(self, subject: str, receive: Receive) -> None:
        """Calls `receive` with every message on a subject."""
        self._receive(subject, lambda _subject, data, _reply: receive(data))

    async def respond(self, subject: str, respond: Respond) -> None:
        """Responds to requests on a subject."""
        await self.respond_on(subject, lambda _subject, data: respond(data))

    async def respond_on(self, subject: str, respond: RespondOn) -> None:
        """Responds to requests on a subject with wildcards."""

        async def answer(subject: str, data: bytes, reply: str) -> None:
            self._broker.publish(self._process, reply, await respond(subject, data))

        self._receive(subject, lambda subject, data, reply: self._spawn(answer(subject, data, reply)))

    async def handle(self, subject: str, handle: Callable[[Any], Awaitable[None]]) -> None:
        """Passes every request on a subject to `handle`."""

        def receive(subject: str, data: bytes, reply: str) -> None:
            if reply:
                self._spawn(handle(MemoryRequest(self._broker, self._process, subject, data, reply)))

        self._receive(subject, receive)

    async def request(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        """Sends a request and returns the response.

        Raises:
            NoResponse: no response within the deadline.
        """
        loop, broker = asyncio.get_running_loop(), self._broker
        ends = loop.time() + deadline_s
        response: asyncio.Future[bytes] = loop.create_future()

        def receive(_subject: str, data: bytes, _reply: str) -> None:
            if not response.done():
                response.set_result(data)

        inbox = broker.open_inbox(self._process, receive)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ends):
                    while not broker.publish(self._process, subject, data, inbox):
                        await asyncio.sleep(RETRY_S)
                    return await response
        finally:
            broker.close_inbox(inbox)
        raise NoResponse(subject, deadline_s)

    def _receive(self, subject: str, receive: Callable[[str, bytes, str], object]) -> None:
        self._broker.subscribe(Subscription(self._process, tuple(subject.split(".")), receive))

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
