"""Charge requests that wait until the ledger has read the positions that they rest on."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from services.quota_ledger.state.ledger_state import FOLDED
from shared.bus import Request
from shared.domain.quota_charge import BadChargeMessage, ChargeRequest, ChargeResponse, decode_request, encode

log = logging.getLogger(__name__)

DROPPED_AFTER_S = 5
"""Longer than a scheduler waits: it has given up, or has repeated the request. Of a clock that nobody sets."""

MAX_PODS = 4_096
"""Pods of the requests that are decided in one append, unless the first request has more."""


class PendingCharge(NamedTuple):
    """A request, and the message to respond to."""

    request: ChargeRequest
    message: Request
    at_s: float


class ChargeInbox:
    """Receives charge requests from the bus and hands out those that can be decided."""

    def __init__(self, wake: Callable[[], None], now_s: Callable[[], float]) -> None:
        """Starts empty.

        Args:
            wake: called for each request.
            now_s: a monotonic clock, such as the event loop's.
        """
        self._wake, self._now_s = wake, now_s
        self._waiting: list[PendingCharge] = []
        self._unreadable = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def receive(self, message: Request) -> None:
        """Stores a message; one that is no request is logged, and gets no response."""
        try:
            request = decode_request(message.data)
        except BadChargeMessage as error:
            self._unreadable += 1
            if self._unreadable.bit_count() == 1:  # the first, second, fourth ...
                log.warning(
                    "a charge request cannot be read", extra={"error": str(error), "unreadable": self._unreadable}
                )
            return
        self._waiting.append(PendingCharge(request, message, self._now_s()))
        self._wake()

    def ready(self, read: Mapping[str, int]) -> list[PendingCharge]:
        """Removes and returns the requests that can be decided, oldest first.

        Args:
            read: positions up to which the ledger's log is up to date.
        """
        oldest_s = self._now_s() - DROPPED_AFTER_S
        found: list[PendingCharge] = []
        left: list[PendingCharge] = []
        pods = 0
        for each in self._waiting:
            has_read = all(read.get(context, 0) >= each.request.seen.get(context, 0) for context in FOLDED)
            count = sum(len(group) for group in each.request.groups)
            if has_read and (not found or pods + count <= MAX_PODS):
                found.append(each)
                pods += count
            elif each.at_s >= oldest_s:
                left.append(each)
        self._waiting = left
        return found

    async def respond(self, pending: PendingCharge, response: ChargeResponse, charged_at: int) -> None:
        """Responds to a request whose charges are committed."""
        await pending.message.respond(encode(replace(response, charged_at=charged_at)))
