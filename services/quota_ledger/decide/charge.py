"""Charging the pods of a scheduler's cycle, before the cycle is recorded.

What an ask charges counts for those that come after it in the same append. An ask asked again charges nothing again: its pods change
hands to the newest cycle. An ask of a cycle that is over is late and changes nothing.

Source: architecture.md, Charging quota; spec/quota.md 6.1, 7.3.
"""

from collections.abc import Sequence

from services.quota_ledger.accounting.projection import AttachedPod
from services.quota_ledger.decide.admission import AdmissionRules, Shortfall, shortfall
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.amounts import Amounts, add, negated, nonzero, raise_clamped, sub
from shared.domain.quota_charge import ChargeRequest, ChargeResponse, QuotaShort
from shared.events import Draft, Event
from shared.events.quota import PodAdmissionDecided, PodCharged


def charge(
    state: LedgerState, asks: Sequence[ChargeRequest], rules: AdmissionRules
) -> tuple[list[Draft], list[ChargeResponse]]:
    """Decide on asks in the order in which they came.

    The state must have read what the asks have `seen`, and have nothing due for their pods; runtimes must be recomputed.

    Returns:
        What to append, in one transaction; and the answers, in the order of the asks, to be given once that is committed. Their
        `charged_at` is left to the caller, who knows it then.
    """
    desk = _Desk(state, rules)
    answers = [desk.answer(ask) for ask in asks]
    return [Draft(event) for event in desk.events], answers


class _Desk:
    """The books with what these asks have been charged so far."""

    def __init__(self, state: LedgerState, rules: AdmissionRules) -> None:
        self._state = state
        self._rules = rules
        self._newest: dict[str, AttachedPod] = {}
        self._used: dict[str, Amounts] = {}
        self._np_used: dict[str, Amounts] = {}
        self.events: list[Event] = []

    def answer(self, ask: ChargeRequest) -> ChargeResponse:
        if self._state.is_over(ask.epoch, ask.cycle):
            return ChargeResponse(epoch=ask.epoch, cycle=ask.cycle, late=True)
        charged: dict[str, str] = {}
        refused: dict[str, QuotaShort] = {}
        for group in ask.groups:
            members = [(uid, held) for uid in group if (held := self._held(uid)) is not None]
            if found := self._short_of(members):
                self._refuse(ask, group, found, refused)
            else:
                self._charge(ask, members, charged)
        return ChargeResponse(epoch=ask.epoch, cycle=ask.cycle, charged=charged, refused=refused)

    def _held(self, uid: str) -> AttachedPod | None:
        """None for a pod that is gone or belongs to no quota: there is nothing to charge."""
        return self._newest.get(uid) or self._state.projection.pods.get(uid)

    def _short_of(self, members: list[tuple[str, AttachedPod]]) -> Shortfall | None:
        """What the members together are short of; None when there is room for all, and then it is taken."""
        taken: list[AttachedPod] = []
        for _, held in members:
            if held.charged:
                continue
            found = self._shortfall(held)
            if found is not None:
                for one in taken:
                    self._take(one, negated(one.request))
                return found
            self._take(held, held.request)
            taken.append(held)
        return None

    def _shortfall(self, held: AttachedPod) -> Shortfall | None:
        tree = self._state.projection.trees[held.tree]
        return shortfall(
            tree,
            held.quota,
            held.request,
            preemptible=held.preemptible,
            rules=self._rules,
            taken=self._used,
            np_taken=self._np_used,
        )

    def _take(self, held: AttachedPod, vector: Amounts) -> None:
        for info in self._state.projection.trees[held.tree].path(held.quota):
            for sums in (self._used,) if held.preemptible else (self._used, self._np_used):
                raise_clamped(sums.setdefault(info.name, {}), vector)

    def _charge(self, ask: ChargeRequest, members: list[tuple[str, AttachedPod]], charged: dict[str, str]) -> None:
        for uid, held in members:
            charged[uid] = held.quota
            if held.charged and (held.epoch, held.cycle) == (ask.epoch, ask.cycle):
                continue
            event = PodCharged(
                pod_uid=uid, pod=held.pod, quota=held.quota, request=held.request, epoch=ask.epoch, cycle=ask.cycle
            )
            self.events.append(event)
            self._newest[uid] = held.charged_by(ask.epoch, ask.cycle)

    def _refuse(
        self, ask: ChargeRequest, group: Sequence[str], found: Shortfall, refused: dict[str, QuotaShort]
    ) -> None:
        missing = nonzero({key: sub(add(found.used, found.request), found.limit)[key] for key in found.exceeded})
        why = QuotaShort(quota=found.quota, stage=found.stage, short=missing, message=found.text())
        for uid in group:
            refused[uid] = why
            held = self._held(uid)
            if held is not None:
                event = PodAdmissionDecided(
                    pod_uid=uid,
                    pod=held.pod,
                    epoch=ask.epoch,
                    cycle=ask.cycle,
                    ok=False,
                    quota=why.quota,
                    stage=why.stage,
                    shortfall=why.short,
                )
                self.events.append(event)
