"""Servers that a process cannot reach at the moment: which, since when, and why."""

import time
from collections.abc import Callable

import msgspec

from shared.kube.instants import SECOND, instant_text


def remedy_of_hang(variable: str) -> str:
    """Returns what to do about a server that does not respond.

    Args:
        variable: of the environment, with the address, as `KOORD_NATS`.
    """
    return (
        "see that it runs: a process that hangs is to be ended, and `koord up` starts its own server again; or correct "
        f"{variable}"
    )


class Unreachable(msgspec.Struct, frozen=True):
    """A server that a process cannot reach.

    Attributes:
        server: its name and address, as `NATS at nats://127.0.0.1:4222`.
        since_ns: instant of the first failure, nanoseconds since the epoch.
        reason: of the newest failure.
    """

    server: str
    since_ns: int
    reason: str

    def __str__(self) -> str:
        """Describes it in one line."""
        since = instant_text(self.since_ns // SECOND * SECOND)
        return f"cannot reach {self.server} since {since}: {' '.join(self.reason.split())}"


class ServerContact:
    """Contact of a process with one server.

    Attributes:
        unreachable: the outage at the moment; None while the server is reached, and before the first attempt.
    """

    def __init__(self, server: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.unreachable: Unreachable | None = None
        self._server = server
        self._now_ns = now_ns

    def failed(self, reason: str) -> None:
        """Records a failure; the first one of an outage begins it."""
        since_ns = self.unreachable.since_ns if self.unreachable else self._now_ns()
        self.unreachable = Unreachable(self._server, since_ns, reason)

    def reached(self) -> None:
        """Ends the outage."""
        self.unreachable = None
