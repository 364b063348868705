"""Asking the ledger for a cycle's charges, and what becomes of the cycle then.

While the ledger does not answer, the pods concerned wait and all others go on: after an ask that nobody answered, it is not asked for a
moment, so that cycles are not held up.
"""

import logging
from collections.abc import Sequence

from services.scheduler.quota.charge_result import Told, settled, to_charge
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
"""An answer that was lost on the way is asked for again; that charges nothing twice."""

AWAY_NS = 1_000_000_000
"""So long is a ledger that did not answer not asked again."""


class ChargeClient:
    """What a leading scheduler charges its cycles to.

    Attributes:
        asked, unanswered: how often.
    """

    def __init__(self, runtime: Runtime, timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._away_until_ns = 0
        self.asked = 0
        self.unanswered = 0

    async def charge(
        self, drafts: Sequence[Draft], seen: dict[str, int], room: QuotaPreemptor, *, evicts: bool = True
    ) -> tuple[Draft, ...]:
        """The cycle as it may be recorded: without the pods that the ledger refused, or did not answer for.

        Args:
            seen: the positions that the cycle rests on.
            room: keeps the room that was made in quotas, and makes it for those that were refused.
            evicts: room is made; False for pods of other schedulers, which preempt for themselves.
        """
        view: ClusterView = self._runtime.state
        groups = to_charge(drafts, lambda uid: _needs_charge(view, uid))
        if not groups:
            return tuple(drafts)
        decided = drafts[0].event
        assert isinstance(decided, CycleDecided)
        kept = room.refused_for_nominated(groups)
        groups = tuple(group for group in groups if group[0] not in kept)
        refused: dict[str, QuotaShort | None] = {**kept}
        charged_at = 0
        if groups:
            answer = await self._ask(
                ChargeRequest(epoch=self._runtime.writer.epoch, cycle=decided.cycle, seen=seen, groups=groups)
            )
            failpoints.hit("scheduler.charged-before-append")
            refused |= dict.fromkeys(uid for group in groups for uid in group) if answer is None else answer.refused
            charged_at = answer.charged_at if answer is not None else 0
        after = settled(drafts, refused, lambda uid: _told(view, uid), charged_at)
        return (*after, *room.made(drafts, after, refused)) if evicts else after

    async def _ask(self, ask: ChargeRequest) -> ChargeResponse | None:
        runtime = self._runtime
        if runtime.now_ns() < self._away_until_ns:
            return None
        self.asked += 1
        for _ in range(TRIES):
            try:
                data = await runtime.bus.request(SUBJECT, encode(ask), deadline_s=self._timeout_s / TRIES)
                answer = decode_response(data)
            except NoResponse:
                continue
            except (NotPermitted, BadChargeMessage) as error:
                log.warning("the quota ledger cannot be asked", extra={"error": str(error)})
                break
            if (answer.epoch, answer.cycle) == (ask.epoch, ask.cycle) and not answer.late:
                return answer
        self.unanswered += 1
        self._away_until_ns = runtime.now_ns() + AWAY_NS
        log.warning("the quota ledger does not answer", extra={"cycle": ask.cycle, "pods": len(ask.groups)})
        return None


def _needs_charge(view: ClusterView, uid: str) -> bool:
    pod_record = view.pods.get(uid)
    return (
        pod_record is not None
        and pod_record.pod_class is not None
        and view.quota.needs_charge(pod_record.pod_class.namespace, pod_record.pod_class.labels)
    )


def _told(view: ClusterView, uid: str) -> Told:
    pod_record = view.pods.get(uid)
    return Told(pod_record.condition_code, pod_record.attempts + 1) if pod_record is not None else Told("", 1)
