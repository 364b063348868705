"""Waiting for what a bus notices by and by."""

import asyncio
from collections.abc import Callable

DEADLINE_S = 30.0


async def until(true: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(deadline_s):
        while not true():
            await asyncio.sleep(0.01)
