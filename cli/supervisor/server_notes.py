"""The notes of `koord up` about the servers that it started itself: one that ended, that does not start, or that hangs."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from cli.supervisor.supervisor import Unit
from cli.supervisor.system_servers import Servers
from cli.terminal.durations import second
from shared.kube.instants import SECOND, instant_text

CONNECTS_NS = 5 * SECOND
"""Time within which services connect again to a server that responds."""


class ServerNotes:
    """The notes of one run; each is printed once."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._hanging: set[str] = set()

    async def mend(self, units: Iterable[Unit]) -> list[str]:
        """Starts servers that ended again; returns the notes that are new.

        Args:
            units: the services, which notice a server that does not respond.
        """
        failed = set(self._servers.failing)
        at = second(datetime.now(UTC))
        notes = [
            f"{at} {name} ended and was started again; its log is in {self._folder / name}"
            for name in await self._servers.mend()
        ]
        notes += [_not_started(name, self._servers.failing[name].why) for name in self._servers.failing.keys() - failed]
        pids = {} if self._servers.failing else {"Postgres": self._servers.postgres_pid, "NATS": self._servers.nats_pid}
        hangs = {name: text for name, pid in pids.items() if (text := hang_of(name, units, pid, time.time_ns()))}
        notes += [f"{at} {text}" for name, text in hangs.items() if name not in self._hanging]
        self._hanging = set(hangs)
        return notes


def hang_of(server: str, units: Iterable[Unit], pid: int | None, now_ns: int) -> str:
    """Returns that Postgres or NATS does not respond, since when, and what to do; empty where it does, and in the seconds
    in which services connect again to one that was started again.

    Args:
        pid: of a server of our own while its process exists.
    """
    statuses = [unit.status for unit in units if unit.status is not None]
    away = [
        each
        for status in statuses
        for each in status.unreachable
        if each.server.startswith(server) and now_ns - each.since_ns >= CONNECTS_NS
    ]
    if not away or pid is None:
        return ""
    since = instant_text(min(each.since_ns for each in away) // SECOND * SECOND)
    return (
        f"{server} (process {pid}) does not respond since {since}, and the services wait for it: "
        f"`kill -9 {pid}`, and it is started again"
    )


def _not_started(name: str, why: str) -> str:
    return f"{name} ended and does not start; it is tried again until it does. `koord doctor` names a full disk. {why}"
