"""The inbox of agents' messages: one queue for the nodes of a shard, and with each message the way to answer it.

A message is answered after it was decided on and committed. One without an answer is sent again: by the agent over
NATS, by the broker over MQTT, which keeps it until it is acknowledged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from shared.agents import receipt, subjects
from shared.agents.receipt import Receipt
from shared.bus import Request
from shared.runtime.sharding import shard_of

log = logging.getLogger(__name__)

WAITING = 4_096
"""Messages that wait for a decision; beyond these, senders are held up (back pressure)."""


class Incoming(NamedTuple):
    """A message of a node's agent.

    Attributes:
        transport: `nats` or `mqtt`.
        answer: sends the receipt. Called once, or never if the message is to be sent again.
    """

    node: str
    data: bytes
    transport: str
    answer: Callable[[Receipt], Awaitable[None]]


class AgentInbox:
    """Messages of one kind, from the nodes of one shard."""

    def __init__(self, kind: str, shard: int, shards: int) -> None:
        self.kind = kind
        self._shard = shard
        self._shards = shards
        self._queue: asyncio.Queue[Incoming] = asyncio.Queue(WAITING)

    def concerns(self, node: str) -> bool:
        """Reports whether the node belongs to this shard."""
        return shard_of(node, self._shards) == self._shard

    async def receive_request(self, request: Request) -> None:
        """Queues a message that came over NATS."""

        async def respond(reply: Receipt) -> None:
            await request.respond(receipt.encode(reply))

        await self.put(request.subject, request.data, "nats", respond)

    async def put(self, where: str, data: bytes, transport: str, respond: Callable[[Receipt], Awaitable[None]]) -> None:
        """Queues a message if its node belongs to this shard; waits while the queue is full.

        Args:
            where: the subject or topic.
        """
        try:
            node = subjects.node_of(where)
        except subjects.BadNode as error:
            log.warning("a message on a topic of no node is dropped", extra={"where": where, "error": str(error)})
            return
        if self.concerns(node):
            await self._queue.put(Incoming(node, data, transport, respond))

    async def put_back(self, message: Incoming) -> None:
        """Queues a message again; waits while the queue is full."""
        await self._queue.put(message)

    async def first(self, timeout_s: float) -> Incoming | None:
        """Waits for the next message; None after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._queue.get()
        except TimeoutError:
            return None

    def next(self) -> Incoming | None:
        """Returns the next message if there is one."""
        return None if self._queue.empty() else self._queue.get_nowait()
