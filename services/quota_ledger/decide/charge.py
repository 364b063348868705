"""Charges the pods of a scheduler's cycle, before the cycle is recorded.

A charge counts for the requests behind it in the same append. A request that is repeated charges nothing twice: its
pods pass to the newest cycle. A request of a cycle that is decided is late and changes nothing.

Source: architecture.md, Charging quota; spec/quota.md 6.1, 7.3.
"""

from collections.abc import Sequence

from services.quota_ledger.decide.admission import AdmissionRules, shortfall
from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.amounts import Amounts, add, negated, nonzero, raise_clamped, sub
from shared.domain.quota_charge import REJECTED, ChargeRequest, ChargeResponse
from shared.domain.quota_rejection import waits_for_rejected
from shared.events import Draft, Event
from shared.events.quota import PodAdmissionDecided, PodCharged
from shared.events.scheduling import QuotaShort


def charge(
    state: LedgerState, requests: Sequence[ChargeRequest], rules: AdmissionRules
) -> tuple[list[Draft], list[ChargeResponse]]:
    """Decides requests in the order of their arrival.

    The State must have read the positions `seen` by the requests and have no update left for their pods; runtimes must
    be recomputed.

    Returns:
        The events to append in one transaction, and a response for each request, to be sent once they are committed.
        The caller, who knows it then, fills in `charged_at`.
    """
    charges = _Charges(state, rules)
    responses = [charges.respond(request) for request in requests]
    return [Draft(event) for event in charges.events], responses


class _Charges:
    """The State, and what these requests have charged on top of it."""

    def __init__(self, state: LedgerState, rules: AdmissionRules) -> None:
        self._state = state
        self._entries = state.pods.entries
        self._rules = rules
        self._newest: dict[str, AttachedPod] = {}
        self._used: dict[str, Amounts] = {}
        self._np_used: dict[str, Amounts] = {}
        self.events: list[Event] = []

    def respond(self, request: ChargeRequest) -> ChargeResponse:
        if self._state.is_late(request.epoch, request.cycle):
            return ChargeResponse(epoch=request.epoch, cycle=request.cycle, late=True)
        charged: dict[str, str] = {}
        refused: dict[str, QuotaShort] = {}
        for group in request.groups:
            members = [(uid, pod) for uid in group if (pod := self._attached(uid)) is not None]
            if found := self._short_of(members):
                self._refuse(request, group, found, refused)
            else:
                self._charge(request, members, charged)
        return ChargeResponse(epoch=request.epoch, cycle=request.cycle, charged=charged, refused=refused)

    def _attached(self, uid: str) -> AttachedPod | None:
        """None for a pod that is deleted or belongs to no quota: there is nothing to charge."""
        if (newest := self._newest.get(uid)) is not None:
            return newest
        entry = self._entries.get(uid)
        return None if entry is None else entry.attached

    def _short_of(self, members: list[tuple[str, AttachedPod]]) -> QuotaShort | None:
        """Counts the members; when they do not all fit, counts none and returns what is short."""
        counted: list[AttachedPod] = []
        for uid, pod in members:
            if pod.charged:
                continue
            found = self._rejected(uid, pod) or self._shortfall(pod)
            if found is not None:
                for each in counted:
                    self._count(each, negated(each.request))
                return found
            self._count(pod, pod.request)
            counted.append(pod)
        return None

    def _rejected(self, uid: str, pod: AttachedPod) -> QuotaShort | None:
        """Returns the reason why a pod waits that would count in the default group because its own quota is rejected.

        That group has no limit, so a tenant with a quota that cannot be read would have more than with one that can.
        """
        observed = self._entries[uid].observed
        if not self._rules.rejected_waits or pod.matched_by != "default" or observed is None:
            return None
        found = self._state.rejection_for(observed.namespace, observed.label)
        if found is None:
            return None
        name, reason = found
        return QuotaShort(quota=name, stage=REJECTED, short={}, message=waits_for_rejected(name, reason))

    def _shortfall(self, pod: AttachedPod) -> QuotaShort | None:
        tree = self._state.projection.trees[pod.tree]
        found = shortfall(
            tree,
            pod.quota,
            pod.request,
            preemptible=pod.preemptible,
            rules=self._rules,
            extra_used=self._used,
            extra_np_used=self._np_used,
        )
        if found is None:
            return None
        missing = nonzero({key: sub(add(found.used, found.request), found.limit)[key] for key in found.exceeded})
        return QuotaShort(quota=found.quota, stage=found.stage, short=missing, message=found.text())

    def _count(self, pod: AttachedPod, amounts: Amounts) -> None:
        for info in self._state.projection.trees[pod.tree].path(pod.quota):
            for sums in (self._used,) if pod.preemptible else (self._used, self._np_used):
                raise_clamped(sums.setdefault(info.name, {}), amounts)

    def _charge(self, request: ChargeRequest, members: list[tuple[str, AttachedPod]], charged: dict[str, str]) -> None:
        for uid, pod in members:
            charged[uid] = pod.quota
            if pod.charged and (pod.epoch, pod.cycle) == (request.epoch, request.cycle):
                continue
            event = PodCharged(
                pod_uid=uid,
                pod=self._entries[uid].name,
                quota=pod.quota,
                request=pod.request,
                epoch=request.epoch,
                cycle=request.cycle,
            )
            self.events.append(event)
            self._newest[uid] = pod.charged_by(request.epoch, request.cycle)

    def _refuse(
        self, request: ChargeRequest, group: Sequence[str], short: QuotaShort, refused: dict[str, QuotaShort]
    ) -> None:
        for uid in group:
            refused[uid] = short
            if self._attached(uid) is not None:
                event = PodAdmissionDecided(
                    pod_uid=uid,
                    pod=self._entries[uid].name,
                    epoch=request.epoch,
                    cycle=request.cycle,
                    ok=False,
                    quota=short.quota,
                    stage=short.stage,
                    shortfall=short.short,
                )
                self.events.append(event)
