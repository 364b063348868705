"""A request to a service that will not answer ends early, with the reason: that of the status pages of its replicas, or
that Postgres is away.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from cli.supervisor.endpoints import Endpoints
from cli.supervisor.gateway_trouble import NOT_SERVED, PageStatus, pages_of, status_at
from cli.terminal.awaited import Awaited, shown
from shared.errors import KoordError
from shared.runtime.task_cancellation import cancel_and_wait

_Answer = TypeVar("_Answer")

FIRST_S = 1.0
"""A service that leads answers sooner, and its pages are not read."""
NEXT_S = 0.5
POSTGRES_S = 2.0
"""Time in which Postgres answers, unless it hangs."""

_HANGS = "its process hangs"


class NoLeader(KoordError):
    """No replica of a service that leads responded to a request."""


async def unless_silent(answer: Awaitable[_Answer], service: str, endpoints: Endpoints) -> _Answer:
    """Returns the answer of a service, and shows on a terminal that it is waited for.

    Raises:
        NoLeader: twice there was a reason for which no replica can lead: each hangs, or a server is away.
    """
    awaited, request, before = Awaited(), asyncio.ensure_future(answer), ""
    async with shown(awaited):
        try:
            with awaited.during(f"the {service}"):
                await asyncio.wait({request}, timeout=FIRST_S)
                while not request.done():
                    reason = await _of_pages(service, endpoints.services) or await _of_postgres(endpoints.postgres)
                    if reason and before:
                        raise NoLeader(f"no {service} responds: {reason}")
                    before = reason
                    await asyncio.wait({request}, timeout=NEXT_S)
            return await request
        finally:
            await cancel_and_wait(request)


async def _of_postgres(postgres: str) -> str:
    """Returns that Postgres does not respond, without which no replica leads; empty where it does, or is not known."""
    from shared.log.admin.session import opened
    from shared.log.unusable_database import DatabaseUnreachable

    if not postgres:
        return ""
    try:
        async with opened(postgres) as database, asyncio.timeout(POSTGRES_S), database.reading() as connection:
            await connection.fetchval("select 1")
    except DatabaseUnreachable as fault:
        return f"{fault.what}; without it none leads; {fault.remedy}"
    except KoordError:
        pass  # it responds, which is all that counts here
    return ""


async def _of_pages(service: str, services: Mapping[str, str]) -> str:
    """Returns why no replica of a service can lead; empty while one may: it leads, starts, or its page is not known."""
    pages = pages_of(service, services)
    found = await asyncio.gather(*(asyncio.to_thread(_status, page) for page in pages))
    reasons = [_reason(each) for each in found]
    return f"{reasons[0]}; `koord doctor` has the remedy" if reasons and all(reasons) else ""


def _reason(status: PageStatus | str) -> str:
    if isinstance(status, str):
        return status
    return "" if status.state == "leading" or not status.unreachable else f"it {status.unreachable[0]}"


def _status(page: str) -> PageStatus | str:
    """Returns the status on a page; a text for a process that does not send it. Without a process there may be one soon."""
    try:
        return status_at(page) or NOT_SERVED
    except TimeoutError:
        return _HANGS
