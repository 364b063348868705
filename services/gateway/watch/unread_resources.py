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
from shared.kube.short_lists import CLUSTER_IDENTITY, without_request
from shared.unreachable import Unreachable

log = logging.getLogger(__name__)

NAMED = 3
STOOD_S = 5.0
"""A watch that the server accepted, and that stood for so long, has ended an outage even if it delivered nothing."""
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
        self._accepted: dict[str, float] = {}

    def accepted(self, resource: str) -> None:
        """Records that the server has accepted a new watch, whose first line may take it a minute.

        The outage is not shown any more. It ends with the first line, and goes on if the watch fails before that and
        within STOOD_S, as one that something between accepts and cuts. A later failure begins an outage of its own.
        """
        if resource in self._since_s:
            self._accepted.setdefault(resource, self._now_s())

    def failing(self, resource: str, reason: str) -> None:
        """Records a failure; an empty reason ends the outage."""
        accepted_s = self._accepted.pop(resource, None)
        if accepted_s is not None and self._now_s() - accepted_s >= STOOD_S:
            self._end(resource)
        if reason:
            self._since_s.setdefault(resource, self._now_s())
            self._reasons[resource] = reason
        else:
            self._end(resource)

    def _end(self, resource: str) -> None:
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


async def request_failure(api: KubeApi, answer_s: float) -> str:
    """Sends the API server one small request; returns why it is not answered, empty where it is.

    Args:
        answer_s: time for the answer.
    """
    try:
        async with asyncio.timeout(answer_s):
            await api.cluster_uid()
    except (ApiError, TimeoutError) as error:
        return str(error) or _late(answer_s)
    return ""


def _late(answer_s: float) -> str:
    return f"no answer within {answer_s:g} s"


async def find_unreachable(api: KubeApi, outages: Outages, now_ns: Callable[[], int]) -> tuple[Unreachable, ...]:
    """Returns the outages, and the API server where it does not answer now: a watch notices that only after minutes."""
    if failure := await request_failure(api, ANSWER_S):
        reason = without_request(failure) or _late(ANSWER_S)
        longest_s = max([0.0, *(outage.lasts_s for outage in outages.current())])
        since_ns = now_ns() - round(max(api.silent_s, longest_s) * SECOND)
        return (Unreachable(f"the API server at {api.server}", since_ns, reason),)
    return unreachable(outages.current(), api.server, now_ns(), api.silent_s)


def unreachable(outages: Sequence[Outage], server: str, now_ns: int, silent_s: float = 0.0) -> tuple[Unreachable, ...]:
    """Returns the outages as one line: the whole API server where nodes and pods are not read, or where it has sent
    nothing since the first failure; else what is not read.

    Args:
        outages: the longest first.
        server: address of the API server.
        now_ns: the wall clock.
        silent_s: time since the API server last sent anything, from which on it counts as away.
    """
    if not outages:
        return ()
    names, longest = [outage.resource for outage in outages], outages[0]
    lasts_s, reason = max(longest.lasts_s, silent_s), without_request(longest.reason)
    since_ns = now_ns - round(lasts_s * SECOND)
    if silent_s >= longest.lasts_s or ESSENTIAL.issubset(names) or CLUSTER_IDENTITY in names:
        return (Unreachable(f"the API server at {server}", since_ns, reason),)
    shown = first_names(names, NAMED)
    return (Unreachable(f"some resources of the API server at {server}", since_ns, f"{shown}: {reason}"),)
