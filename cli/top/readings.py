"""One reading of a running system: the log's heads and followers from Postgres, beacons from the bus, /statusz of known
addresses.

Each source may be away; its part is then empty, and `problems` names it.
"""

import asyncio
import time
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import aiohttp
import msgspec

from shared.errors import KoordError, fault_of
from shared.events.log import WriterStarted
from shared.log.admin import lag, server_check
from shared.log.admin.lag import Behind
from shared.log.admin.newest_events import Found, writer_of
from shared.log.announcements import Beacon
from shared.log.database import FAILURES, Database
from shared.log.reader import LogReader
from shared.log.unusable_database import OF_A_HANG
from shared.runtime.status import Status

SIZES_INTERVAL_S = 10.0
"""A size reads the size of every partition's files."""
STATUS_S = 1.0
BEACON_AGE_S = 3.5
"""Seconds without a beacon after which a writer counts as silent."""
FIRST_BEACON_S = 1.4
"""Seconds within which a writer's first beacon arrives: it sends one each second."""
ANSWER_S = 3.0
HANG_PAUSE_S = 5.0
"""Seconds for which a Postgres that did not answer is not read again: each look would wait for it."""


class Writer(NamedTuple):
    """The actor of the newest WriterStarted of a context."""

    service: str
    replica: str
    epoch: int
    since_ns: int


class ContextSeen(NamedTuple):
    """A context at one instant.

    Attributes:
        head: the larger of the log's and the beacon's.
        has_beacon: its writer's beacon came in the last seconds; None when the bus is away, or not listened to for long
            enough.
    """

    head: int
    has_beacon: bool | None
    writer: Writer | None
    size: server_check.ContextSize | None


class NoStatus(Enum):
    """Why the page of a process has no status: no process serves it, or the one that does sends no status in time."""

    UNSERVED = "unserved"
    SILENT = "silent"


class Reading(NamedTuple):
    """Everything at one instant.

    Attributes:
        at_s: by the monotonic clock.
        statuses: name of the process -> its status; None without a response.
        starting: names of processes without a response that start: none serves its page yet, and `koord up` keeps it.
    """

    at_s: float
    now_ns: int
    contexts: dict[str, ContextSeen]
    followers: list[Behind]
    statuses: dict[str, Status | None]
    problems: list[str]
    starting: frozenset[str] = frozenset()


class Instruments:
    """Connections and caches that are kept between readings.

    Attributes:
        beacons: context -> its newest beacon and when it came, by the monotonic clock.
        bus_connected: beacons can arrive; the caller sets it before each reading.
    """

    def __init__(self, database: Database, statuses: Mapping[str, str], *, are_kept: bool = False) -> None:
        """Remembers the sources.

        Args:
            statuses: name of a process -> `host:port` or URL of its pages.
            are_kept: `koord up` keeps all of them running; else an address that never responded may be of a service
                that is not part of this installation.
        """
        self.beacons: dict[str, tuple[Beacon, float]] = {}
        self.bus_connected = False
        self._began = time.monotonic()
        self._database = database
        self._statuses = statuses
        self._are_kept = are_kept
        self._answered: set[str] = set()
        self._session: aiohttp.ClientSession | None = None
        self._sizes: dict[str, server_check.ContextSize] = {}
        self._sizes_at = -SIZES_INTERVAL_S
        self._hangs: tuple[float, str] = (-HANG_PAUSE_S, "")

    def receive(self, beacon: Beacon) -> None:
        """Takes note of a beacon; the highest epoch counts."""
        known = self.beacons.get(beacon.context)
        if known is None or beacon.epoch >= known[0].epoch:
            self.beacons[beacon.context] = (beacon, time.monotonic())

    async def read(self) -> Reading:
        """Takes a reading; a source that does not answer within seconds is a problem, not an error."""
        problems: list[str] = []
        contexts: dict[str, ContextSeen] = {}
        followers: list[Behind] = []
        pages = asyncio.create_task(self._read_pages())
        since_s, hangs = self._hangs
        if time.monotonic() - since_s < HANG_PAUSE_S:
            problems.append(hangs)
        else:
            try:
                async with asyncio.timeout(ANSWER_S):
                    contexts = await self._contexts()
                    followers = await lag.behind(self._database)
            except TimeoutError as error:
                problems.append(f"Postgres: {fault_of(error)}; {OF_A_HANG}")
                self._hangs = time.monotonic(), problems[-1]
            except (KoordError, *FAILURES) as error:
                problems.append(f"Postgres: {fault_of(error)}")
        if not self.bus_connected:
            problems.append("NATS is not connected: beacons are unknown, followers poll Postgres each second")
        found = await pages
        starting = frozenset(name for name, page in found.items() if page is NoStatus.UNSERVED and self._are_kept)
        return Reading(time.monotonic(), time.time_ns(), contexts, followers, _statuses(found), problems, starting)

    async def _contexts(self) -> dict[str, ContextSeen]:
        reader = LogReader(self._database)
        names = await reader.contexts()
        now = time.monotonic()
        if now - self._sizes_at >= SIZES_INTERVAL_S:
            self._sizes = {name: await server_check.size_of(self._database, name) for name in names}
            self._sizes_at = now
        found = {}
        for name in names:
            head = (await reader.head(name)).seq
            writer = _writer(await writer_of(self._database, name))
            has_beacon: bool | None = None
            if self.bus_connected:
                beacon, at = self.beacons.get(name, (None, 0.0))
                has_beacon = beacon is not None and now - at < BEACON_AGE_S if writer else None
                if beacon is None and now - self._began < FIRST_BEACON_S:
                    has_beacon = None
                if beacon is not None and has_beacon and writer and beacon.epoch == writer.epoch:
                    head = max(head, beacon.seq)
            found[name] = ContextSeen(head, has_beacon, writer, self._sizes.get(name))
        return found

    async def close(self) -> None:
        """Ends the connections to the services' pages."""
        if self._session:
            await self._session.close()

    async def _read_pages(self) -> dict[str, Status | NoStatus]:
        if self._session is None:
            # Kept, so that a name is looked up once: while a server's name cannot be resolved, its lookups block all
            # others.
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STATUS_S))
        session = self._session
        found = await _pages(session, self._statuses)
        self._answered |= {name for name, page in found.items() if isinstance(page, Status)}
        return {name: page for name, page in found.items() if self._are_kept or name in self._answered}


def _writer(found: Found | None) -> Writer | None:
    if found is None:
        return None
    assert isinstance(found.record.event, WriterStarted)
    service, _, replica = found.actor.partition("@")
    return Writer(service, replica, found.record.event.epoch, found.record.at_ns)


async def read_statuses(session: aiohttp.ClientSession, addresses: Mapping[str, str]) -> dict[str, Status | None]:
    """Reads the status of each process; None of one that does not respond.

    Args:
        addresses: name of a process -> `host:port` or URL of its pages.
    """
    return _statuses(await _pages(session, addresses))


def _statuses(pages: Mapping[str, Status | NoStatus]) -> dict[str, Status | None]:
    return {name: page if isinstance(page, Status) else None for name, page in pages.items()}


async def _pages(session: aiohttp.ClientSession, addresses: Mapping[str, str]) -> dict[str, Status | NoStatus]:
    answers = await asyncio.gather(*(_page(session, address) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))


async def _page(session: aiohttp.ClientSession, address: str) -> Status | NoStatus:
    url = address if "//" in address else f"http://{address}"
    try:
        async with session.get(f"{url.rstrip('/')}/statusz") as answer:
            return msgspec.json.decode(await answer.read(), type=Status)
    except aiohttp.ClientConnectorError:
        return NoStatus.UNSERVED
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
        return NoStatus.SILENT
