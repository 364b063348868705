"""The interface of a transport, and the parts that MQTT and NATS share.

A transport runs until cancelled and reconnects by itself.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, Protocol

from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

LONGEST_PAUSE_S = 30.0
POLL_INTERVAL_S = 60.0
"""Seconds between two requests for the newest NodeSLO, which is also pushed when it changes: a push may be lost."""


class Transport(Protocol):
    """Sends the outbox to ingest, and hands received NodeSLOs and pods to their informers."""

    @property
    def connected(self) -> bool:
        """Reports whether messages are being accepted, as far as is known."""

    async def run(self) -> None:
        """Runs until cancelled."""

    async def close(self) -> None:
        """Sends the pending messages, then closes the connection."""


class Backoff:
    """Pauses between attempts: 0.5 s, doubled each time up to 30 s, each shortened at random.

    The randomness spreads the reconnects of a fleet.
    """

    def __init__(self) -> None:
        self._next_s = 0.5

    def reset(self) -> None:
        """Starts again with the shortest pause, after a success."""
        self._next_s = 0.5

    async def wait(self) -> None:
        """Waits for the next pause."""
        pause_s = self._next_s * (0.5 + random.random() / 2)  # noqa: S311  no secret
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


async def until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs coroutines concurrently until one of them ends.

    Cancels the others, and raises the exception that ended it.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    finally:
        await cancel_and_wait(*tasks)
