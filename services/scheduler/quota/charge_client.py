"""Charges a cycle to the quota ledger, and takes back what the ledger refuses.

While the ledger does not respond, the pods that need a charge wait and all others go on. After an unanswered request
the ledger gets none for a moment, so that it does not hold up every cycle.
"""

import asyncio
import logging

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan
from services.scheduler.quota.charge_of_cycle import LedgerResponse, charge_of, charged
from shared.bus import NoResponse, NotPermitted
from shared.domain.quota_charge import SUBJECT, BadChargeMessage, ChargeRequest, ChargeResponse, decode_response, encode
from shared.runtime import failpoints
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

TRIES = 2
"""Requests per cycle; a response may be lost on the way, and a repeated request charges nothing twice."""

COOL_DOWN_S = 1.0
"""Cool-down after an unanswered request."""


class ChargeClient:
    """Requests charges for the cycles of the leading scheduler.

    Attributes:
        requests: cycles that requested charges; unanswered: those of them without a response.
    """

    def __init__(self, runtime: Runtime, timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._unavailable_until_s = 0.0  # by the event loop's clock: the wall clock may be set back
        self.requests = 0
        self.unanswered = 0

    async def charge(self, plan: CyclePlan, cache: CycleInputs, seen: dict[str, int]) -> CyclePlan:
        """Returns the plan to record: without the units that the ledger refused or did not respond for, and with
        preemption for them.

        The caller holds the State: everything but the response is read at `seen`, before the request or after it.

        Args:
            cache: that the plan rests on.
            seen: the positions that it rests on.
        """
        charge = charge_of(plan, cache)
        if charge is None:
            return plan
        response: ChargeResponse | None = None
        if charge.groups:
            response = await self._request(
                ChargeRequest(epoch=self._runtime.writer.epoch, cycle=plan.cycle, seen=seen, groups=charge.groups)
            )
            failpoints.hit("scheduler.charged-before-append")
        return charged(
            plan, cache, charge, None if response is None else LedgerResponse(response.charged_at, response.refused)
        )

    async def _request(self, request: ChargeRequest) -> ChargeResponse | None:
        """The ledger's response; None without one."""
        runtime = self._runtime
        if asyncio.get_running_loop().time() < self._unavailable_until_s:
            return None
        self.requests += 1
        for _ in range(TRIES):
            try:
                data = await runtime.bus.request(SUBJECT, encode(request), deadline_s=self._timeout_s / TRIES)
                response = decode_response(data)
            except NoResponse:
                continue
            except (NotPermitted, BadChargeMessage) as error:
                log.warning("the quota ledger cannot be reached for a charge", extra={"error": str(error)})
                break
            # The response to an earlier cycle may arrive late, and a late request is refused as a whole.
            if (response.epoch, response.cycle) == (request.epoch, request.cycle) and not response.late:
                return response
        self.unanswered += 1
        self._unavailable_until_s = asyncio.get_running_loop().time() + COOL_DOWN_S
        log.warning("the quota ledger does not respond", extra={"cycle": request.cycle, "pods": len(request.groups)})
        return None
