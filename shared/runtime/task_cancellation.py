"""Cancellation of background tasks."""

import asyncio
from typing import Any

AGAIN_S = 0.5
"""A task that has not ended by then is cancelled once more."""


async def cancel_and_wait(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks and waits until each has ended, however it does.

    One cancellation may be lost: `asyncio.wait_for` of Python 3.11, which client libraries use, drops it when its
    result arrives in the same instant. Waiting for such a task would then never end.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)  # errors count as retrieved
