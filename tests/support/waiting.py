"""Waiting for a condition: polls it until it holds, and reports the last value when it does not.

A test waits for something that must happen, so a long limit costs nothing where all is well: it is enough for a loaded
machine, and no test depends on the machine's speed. A look in memory is repeated each 10 ms, any other each 50 ms, or
after as long as it took: polling must not take the processor from what is waited for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, overload

T = TypeVar("T")
P = ParamSpec("P")

PATIENCE_S = 240.0
_IN_MEMORY_INTERVAL_S = 0.01
_OTHER_INTERVAL_S = 0.05


@overload
async def until(look: Callable[[], Awaitable[T | None]], what: str = "", *, within_s: float = PATIENCE_S) -> T: ...


@overload
async def until(look: Callable[[], T | None], what: str = "", *, within_s: float = PATIENCE_S) -> T: ...


@overload
async def until(
    look: Callable[[], Awaitable[T]], what: str = "", *, holds: Callable[[T], object], within_s: float = PATIENCE_S
) -> T: ...


@overload
async def until(
    look: Callable[[], T], what: str = "", *, holds: Callable[[T], object], within_s: float = PATIENCE_S
) -> T: ...


async def until(
    look: Callable[[], Any], what: str = "", *, holds: Callable[[Any], object] = bool, within_s: float = PATIENCE_S
) -> Any:
    """Polls until what `look` returns satisfies `holds`; returns that value.

    Args:
        look: sync, for values in memory; async, or wrapped by `in_thread`, for what takes a call.
        what: the awaited thing, for the error; without it the error gives the place of `look`.
        holds: the condition; without it the value must be true.
        within_s: seconds until the wait is given up, a look that is under way included.

    Raises:
        AssertionError: the condition did not hold in time; with the last value.
    """
    last: object = "nothing yet"
    try:
        async with asyncio.timeout(within_s) as limit:
            while True:
                began = time.monotonic()
                found = look()
                pause_s = _IN_MEMORY_INTERVAL_S
                if isinstance(found, Awaitable):
                    found = await found
                    pause_s = max(_OTHER_INTERVAL_S, time.monotonic() - began)
                if holds(found):
                    return found
                last = found
                await asyncio.sleep(pause_s)
    except TimeoutError:
        if not limit.expired():
            raise  # from the look itself
        raise AssertionError(_late(look, what, within_s, last)) from None


@overload
def wait_until(look: Callable[[], T | None], what: str = "", *, within_s: float = PATIENCE_S) -> T: ...


@overload
def wait_until(
    look: Callable[[], T], what: str = "", *, holds: Callable[[T], object], within_s: float = PATIENCE_S
) -> T: ...


def wait_until(
    look: Callable[[], Any], what: str = "", *, holds: Callable[[Any], object] = bool, within_s: float = PATIENCE_S
) -> Any:
    """Does what `until` does, in a test without an event loop.

    Raises:
        AssertionError: the condition did not hold in time; with the last value.
    """
    ends = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if holds(found := look()):
            return found
        now = time.monotonic()
        if now > ends:
            raise AssertionError(_late(look, what, within_s, found))
        time.sleep(max(_OTHER_INTERVAL_S, now - began))


def in_thread(look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], Awaitable[T]]:
    """Returns an async look that makes a blocking call in a thread, so that the event loop goes on meanwhile."""
    return lambda: asyncio.to_thread(look, *args, **kwargs)


def _late(look: Callable[[], object], what: str, within_s: float, last: object) -> str:
    code = getattr(look, "__code__", None)
    what = what or (f"condition at {code.co_filename}:{code.co_firstlineno}" if code else repr(look))
    return f"{what}: not within {within_s:g} s; the last value is {last!r:.4000}"
