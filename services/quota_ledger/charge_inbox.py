"""Asks that wait for the ledger: until it has read what they rest on, or nobody waits for an answer any more."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from services.quota_ledger.state.ledger_state import FOLDED
from shared.bus import Request
from shared.domain.quota_charge import BadChargeMessage, ChargeRequest, ChargeResponse, decode_request, encode
from shared.kube.instants import SECOND
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

FORGOTTEN_AFTER_S = 5
"""Who asked has given up long before, or has asked again."""

MOST_PODS = 4_096
"""Pods of the asks that are decided in one append, unless the first of them has more."""


class PendingCharge(NamedTuple):
    """An ask, and who waits for its answer."""

    ask: ChargeRequest
    question: Request
    at_ns: int


class ChargeInbox:
    """Takes asks from the bus, and hands out those that can be decided."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[PendingCharge] = []

    def __len__(self) -> int:
        return len(self._waiting)

    async def asked(self, question: Request) -> None:
        """Take a message; what is no ask is logged, and whoever sent it waits in vain."""
        try:
            ask = decode_request(question.data)
        except BadChargeMessage as error:
            log.warning("an ask cannot be read", extra={"error": str(error)})
            return
        self._waiting.append(PendingCharge(ask, question, self._runtime.now_ns()))
        self._runtime.follower.wake()

    def ready(self, read: Mapping[str, int]) -> list[PendingCharge]:
        """The asks that rest on nothing that is not in the books, oldest first; they leave the desk.

        Args:
            read: positions of what has been booked.
        """
        oldest_ns = self._runtime.now_ns() - FORGOTTEN_AFTER_S * SECOND
        found: list[PendingCharge] = []
        left: list[PendingCharge] = []
        pods = 0
        for each in self._waiting:
            known = all(read.get(context, 0) >= each.ask.seen.get(context, 0) for context in FOLDED)
            count = sum(len(group) for group in each.ask.groups)
            if known and (not found or pods + count <= MOST_PODS):
                found.append(each)
                pods += count
            elif each.at_ns >= oldest_ns:
                left.append(each)
        self._waiting = left
        return found

    async def answer(self, asked: PendingCharge, answer: ChargeResponse, charged_at: int) -> None:
        """Answer an ask whose charges are committed."""
        await asked.question.respond(encode(replace(answer, charged_at=charged_at)))
