"""Resources that are not read at the moment: since when, and why.

Each failed list or watch is repeated for as long as it takes. An outage that lasts is an error in the log, and
`koord_gateway_outage_seconds`.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger(__name__)


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

    def failing(self, resource: str, reason: str) -> None:
        """Records a failure; an empty reason ends the outage."""
        if reason:
            self._since_s.setdefault(resource, self._now_s())
            self._reasons[resource] = reason
        else:
            self._since_s.pop(resource, None)
            self._reported_s.pop(resource, None)

    def current(self) -> list[Outage]:
        """Returns the outages, the longest first."""
        now_s = self._now_s()
        return [
            Outage(resource, now_s - since_s, self._reasons[resource]) for resource, since_s in self._since_s.items()
        ]

    def longest_s(self) -> float:
        """Returns the duration of the longest outage; 0 for none."""
        return max((outage.lasts_s for outage in self.current()), default=0.0)

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
            for outage in self.current()
            if outage.lasts_s >= limit_s and now_s - self._reported_s.get(outage.resource, now_s - limit_s) >= limit_s
        ]
        self._reported_s |= {outage.resource: now_s for outage in found}
        return found
