"""Tasks end when they are ended, even one that loses a cancellation."""

import asyncio

from shared.runtime.task_cancellation import AGAIN_S, cancel_and_wait


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost > 1:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.cancelled()
    assert lost == 2


async def test_how_a_task_ends_is_its_own_affair() -> None:
    async def fails() -> None:
        raise RuntimeError("on its way out")

    async def answers() -> int:
        return 1

    failing, answering = asyncio.create_task(fails()), asyncio.create_task(answers())
    await asyncio.wait({failing, answering})
    await cancel_and_wait(failing, answering)
    assert answering.result() == 1


async def test_no_tasks_are_ended_at_once() -> None:
    async with asyncio.timeout(AGAIN_S / 2):
        await cancel_and_wait()
