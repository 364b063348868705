"""Where messages of agents come in: one queue of what this shard is to take, and for each message the transport back.

A message is answered when it was decided on, which is after the commit. What is not answered is sent again: by an agent that receive_request over
NATS, or by the broker, which keeps it until it is acknowledged.
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
"""Messages that wait to be decided on; who sends more waits too."""


class Incoming(NamedTuple):
    """A message of a node's agent.

    Attributes:
        transport: `nats` or `mqtt`.
        answer: sends back what became of it; a message must be answered once, or never if it is to come again.
    """

    node: str
    data: bytes
    transport: str
    answer: Callable[[Receipt], Awaitable[None]]


class Inbox:
    """Messages of one kind, of the nodes of one shard."""

    def __init__(self, kind: str, shard: int, shards: int) -> None:
        self.kind = kind
        self._shard = shard
        self._shards = shards
        self._queue: asyncio.Queue[Incoming] = asyncio.Queue(WAITING)

    def concerns(self, node: str) -> bool:
        """Whether the node is of this shard."""
        return shard_of(node, self._shards) == self._shard

    async def receive_request(self, request: Request) -> None:
        """Take a message that came over NATS."""

        async def respond(reply: Receipt) -> None:
            await request.respond(receipt.encode(reply))

        await self.put(request.subject, request.data, "nats", respond)

    async def put(self, where: str, data: bytes, transport: str, respond: Callable[[Receipt], Awaitable[None]]) -> None:
        """Take a message, if it is of a node of this shard; waits while there are too many.

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

    async def first(self, timeout_s: float) -> Incoming | None:
        """The next message, waited for."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._queue.get()
        except TimeoutError:
            return None

    def next(self) -> Incoming | None:
        """The next message if there is one."""
        return None if self._queue.empty() else self._queue.get_nowait()
