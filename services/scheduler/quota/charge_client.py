"""Charges a cycle to the quota ledger, and takes back what the ledger refuses.

While the ledger does not respond, the pods that need a charge wait and all others go on. After an unanswered request
the ledger gets none for a moment, so that it does not hold up every cycle.
"""

import logging
from collections.abc import Sequence

from services.scheduler.quota.charge_result import PendingCondition, apply_charge_result, pods_to_charge
from services.scheduler.quota.preemption import QuotaPreemptor
from services.scheduler.state.cluster_view import ClusterView
from shared.bus import NoResponse, NotPermitted
from shared.domain.quota_charge import (
    SUBJECT,
    BadChargeMessage,
    ChargeRequest,
    ChargeResponse,
    QuotaShort,
    decode_response,
    encode,
)
from shared.events import Draft
from shared.events.scheduling import CycleDecided
from shared.runtime import failpoints
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

TRIES = 2
"""Requests per cycle; a response may be lost on the way, and a repeated request charges nothing twice."""

COOL_DOWN_NS = 1_000_000_000
"""Cool-down after an unanswered request."""


class ChargeClient:
    """Requests charges for the cycles of the leading scheduler.

    Attributes:
        requests: cycles that requested charges; unanswered: those of them without a response.
    """

    def __init__(self, runtime: Runtime, timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._unavailable_until_ns = 0
        self.requests = 0
        self.unanswered = 0

    async def charge(
        self, drafts: Sequence[Draft], seen: dict[str, int], preemptor: QuotaPreemptor, *, preempts: bool = True
    ) -> tuple[Draft, ...]:
        """Returns the cycle to record: without the pods that the ledger refused or did not respond for, and with
        preemption for them.

        The caller holds the State: everything but the response is read at `seen`, before the request or after it.

        Args:
            seen: the positions that the cycle rests on.
            preemptor: keeps capacity in quotas for nominated pods, and frees it for refused ones.
            preempts: False for pods of other schedulers, which preempt for themselves.
        """
        view: ClusterView = self._runtime.state
        groups = pods_to_charge(drafts, lambda uid: _needs_charge(view, uid))
        if not groups:
            return tuple(drafts)
        decided = drafts[0].event
        assert isinstance(decided, CycleDecided)
        kept = preemptor.refused_for_nominated(groups)
        groups = tuple(group for group in groups if group[0] not in kept)
        refused: dict[str, QuotaShort | None] = {**kept}
        charged_at = 0
        if groups:
            response = await self._request(
                ChargeRequest(epoch=self._runtime.writer.epoch, cycle=decided.cycle, seen=seen, groups=groups)
            )
            failpoints.hit("scheduler.charged-before-append")
            unanswered = dict.fromkeys(uid for group in groups for uid in group)
            refused |= unanswered if response is None else response.refused
            charged_at = response.charged_at if response is not None else 0
        after = apply_charge_result(drafts, refused, lambda uid: _condition(view, uid), charged_at)
        return (*after, *preemptor.preempt(drafts, after, refused)) if preempts else after

    async def _request(self, request: ChargeRequest) -> ChargeResponse | None:
        """The ledger's response; None without one."""
        runtime = self._runtime
        if runtime.now_ns() < self._unavailable_until_ns:
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
        self._unavailable_until_ns = runtime.now_ns() + COOL_DOWN_NS
        log.warning("the quota ledger does not respond", extra={"cycle": request.cycle, "pods": len(request.groups)})
        return None


def _needs_charge(view: ClusterView, uid: str) -> bool:
    pod = view.pods.get(uid)
    if pod is None or pod.pod_class is None:
        return False
    return view.quota.needs_charge(pod.pod_class.namespace, pod.pod_class.labels)


def _condition(view: ClusterView, uid: str) -> PendingCondition:
    pod = view.pods.get(uid)
    return PendingCondition(pod.condition_code, pod.attempts + 1) if pod is not None else PendingCondition("", 1)
