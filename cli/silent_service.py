"""A request to a service that will not answer ends early, with the reason that the status pages of its replicas show."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from cli.supervisor.gateway_trouble import PageStatus, pages_of, status_at
from cli.terminal.awaited import Awaited, shown
from shared.errors import KoordError
from shared.runtime.task_cancellation import cancel_and_wait

_Answer = TypeVar("_Answer")

FIRST_S = 1.0
"""A service that leads answers sooner, and its pages are not read."""
NEXT_S = 0.5

_HANGS = "its process hangs"


class NoLeader(KoordError):
    """No replica of a service that leads responded to a request."""


async def unless_silent(answer: Awaitable[_Answer], service: str, services: Mapping[str, str]) -> _Answer:
    """Returns the answer of a service, and shows on a terminal that it is waited for.

    Args:
        services: name of a process -> `host:port` or URL of its pages, as far as they are known.

    Raises:
        NoLeader: no replica leads, for the same reason twice: each hangs, or cannot reach a server.
    """
    awaited, request, before = Awaited(), asyncio.ensure_future(answer), ""
    async with shown(awaited):
        try:
            with awaited.during(f"the {service}"):
                await asyncio.wait({request}, timeout=FIRST_S)
                while not request.done():
                    reason = await reason_of_silence(service, services)
                    if reason and before:
                        raise NoLeader(f"no {service} responds: {reason}; `koord doctor` has the remedy")
                    before = reason
                    await asyncio.wait({request}, timeout=NEXT_S)
            return await request
        finally:
            await cancel_and_wait(request)


async def reason_of_silence(service: str, services: Mapping[str, str]) -> str:
    """Returns why no replica of a service can lead; empty while one may: it leads, starts, or its page is not known."""
    pages = pages_of(service, services)
    found = await asyncio.gather(*(asyncio.to_thread(_status, page) for page in pages))
    reasons = [_reason(each) for each in found]
    return reasons[0] if reasons and all(reasons) else ""


def _reason(status: PageStatus | str) -> str:
    if isinstance(status, str):
        return status
    return "" if status.state == "leading" or not status.unreachable else f"it {status.unreachable[0]}"


def _status(page: str) -> PageStatus | str:
    """Returns the status on a page; a text for a process that does not send it. Without a process there may be one soon."""
    try:
        return status_at(page) or PageStatus("")
    except TimeoutError:
        return _HANGS
