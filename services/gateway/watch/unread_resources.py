"""Resources that are not read at the moment: since when, and why.

Each failed list or watch is repeated for as long as it takes. An outage is shown while it lasts, and one that lasts
long is an error in the log, and `koord_gateway_outage_seconds`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import ESSENTIAL
from shared.first_names import first_names
from shared.kube.instants import SECOND
from shared.kube.short_lists import without_request
from shared.unreachable import Unreachable

log = logging.getLogger(__name__)

CLUSTER_IDENTITY = "the namespace kube-system"
"""Stands for the first read of a term: nothing else is read before it."""

NAMED = 3
ANSWER_S = 3.0
"""Time in which the API server answers one small request, unless it hangs."""


class Outage(NamedTuple):
    """A resource that is not read.

    Attributes:
        lasts_s: time since the first failure.
        reason: of the newest failure, with the request.
    """

    resource: str
    lasts_s: float
    reason: str


class Outages:
    """Outages by resource."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Starts without outages; `now_s` is a monotonic clock."""
        self._now_s = now_s
        self._since_s: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._reported_s: dict[str, float] = {}
        self._accepted: dict[str, None] = {}

    def accepted(self, resource: str) -> None:
        """Records that the server has accepted a new watch, whose first line may take it a minute.

        The outage is not shown any more. It ends with the first line, and goes on if the watch fails before that.
        """
        if resource in self._since_s:
            self._accepted[resource] = None

    def failing(self, resource: str, reason: str) -> None:
        """Records a failure; an empty reason ends the outage."""
        self._accepted.pop(resource, None)
        if reason:
            self._since_s.setdefault(resource, self._now_s())
            self._reasons[resource] = reason
        else:
            self._since_s.pop(resource, None)
            self._reported_s.pop(resource, None)

    def current(self) -> list[Outage]:
        """Returns the outages to show, the longest first."""
        return [outage for outage in self._all() if outage.resource not in self._accepted]

    def longest_s(self) -> float:
        """Returns the duration of the longest outage; 0 for none."""
        return max((outage.lasts_s for outage in self._all()), default=0.0)

    def log_lasting(self, limit_s: float) -> None:
        """Logs the outages that are due: see `to_report`."""
        for outage in self.to_report(limit_s):
            log.error(
                "resource is not read",
                extra={"resource": outage.resource, "for_s": round(outage.lasts_s), "reason": outage.reason},
            )

    def to_report(self, limit_s: float) -> list[Outage]:
        """Returns outages that last `limit_s`, each again after as long."""
        now_s = self._now_s()
        found = [
            outage
            for outage in self._all()
            if outage.lasts_s >= limit_s and now_s - self._reported_s.get(outage.resource, now_s - limit_s) >= limit_s
        ]
        self._reported_s |= {outage.resource: now_s for outage in found}
        return found

    def _all(self) -> list[Outage]:
        now_s = self._now_s()
        return [
            Outage(resource, now_s - since_s, self._reasons[resource]) for resource, since_s in self._since_s.items()
        ]


async def find_unreachable(api: KubeApi, outages: Outages, now_ns: Callable[[], int]) -> tuple[Unreachable, ...]:
    """Returns the outages, and the API server where it does not answer now: a watch notices that only after minutes."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await api.cluster_uid()
    except (ApiError, TimeoutError) as error:
        reason = without_request(str(error)) or f"no answer within {ANSWER_S:g} s"
        since_ns = now_ns() - round(api.silent_s * SECOND)
        return (Unreachable(f"the API server at {api.server}", since_ns, reason),)
    return unreachable(outages.current(), api.server, now_ns())


def unreachable(outages: Sequence[Outage], server: str, now_ns: int) -> tuple[Unreachable, ...]:
    """Returns the outages as one line: the whole API server where nodes and pods are not read, else what is not read.

    Args:
        outages: the longest first.
        server: address of the API server.
        now_ns: the wall clock.
    """
    if not outages:
        return ()
    names, longest = [outage.resource for outage in outages], outages[0]
    since_ns, reason = now_ns - round(longest.lasts_s * SECOND), without_request(longest.reason)
    if ESSENTIAL.issubset(names) or CLUSTER_IDENTITY in names:
        return (Unreachable(f"the API server at {server}", since_ns, reason),)
    shown = first_names(names, NAMED)
    return (Unreachable(f"some resources of the API server at {server}", since_ns, f"{shown}: {reason}"),)
