"""How messages travel: what MQTT and NATS have in common. A transport runs until cancelled and mends its connection itself."""

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, Protocol

from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

LONGEST_PAUSE_S = 30.0
POLL_INTERVAL_S = 60.0
"""The newest NodeSLO is heard when it is published; asked for at each connection, and so often for good measure."""


class Transport(Protocol):
    """Brings what waits in an outbox to ingest, and the newest NodeSLO to its slo_informer."""

    @property
    def connected(self) -> bool:
        """Whether somebody takes messages at the moment, as far as is known."""

    async def run(self) -> None:
        """Carries until cancelled."""

    async def close(self) -> None:
        """Ends the connection in order."""


class Backoff:
    """Backoff between attempts: 0.5 s, doubled each time up to 30 s, each shortened by chance, so that a fleet comes back spread out."""

    def __init__(self) -> None:
        self._next_s = 0.5

    def reset(self) -> None:
        """The last attempt was a success."""
        self._next_s = 0.5

    async def wait(self) -> None:
        """Backoff."""
        pause_s = self._next_s * (0.5 + random.random() / 2)  # noqa: S311  no secret
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


async def until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs parts side by side until one of them ends; the others are cancelled. What ended it is raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    finally:
        await cancel_and_wait(*tasks)
