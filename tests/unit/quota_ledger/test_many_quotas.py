"""Thousands of quotas of one tenant do not slow the charges of another. Counted in lines of Python, not in seconds."""

import pytest
from prometheus_client import CollectorRegistry

from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.decide.decide_ledger_events import caught_up
from services.quota_ledger.decide.quota_status import MAX_OBJECTS, statuses
from services.quota_ledger.metrics import MAX_QUOTAS, QuotaMetrics
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.quota_charge import ChargeRequest
from shared.events import Event, RecordedEvent
from shared.events.quota import RuntimeRecomputed
from shared.kube.instants import SECOND
from tests.support.executed_lines import steps_of
from tests.support.quota_logs import node, pod, quota

FEW, MANY = 100, 1_000
ENOUGH = str(MANY + 10)
SCARCE = str(FEW // 2)


def fold(state: LedgerState, context: str, *events: Event) -> None:
    for event in events:
        state.apply(RecordedEvent(context, state.positions.get(context, 0) + 1, event, 1))


def flooded(quotas: int, parent: str, cpu: str = ENOUGH) -> LedgerState:
    """Returns a ledger with the quota `mine` and, below `parent`, so many of another tenant, each with a pod."""
    state = LedgerState()
    fold(state, "cluster", node("n1", cpu), quota("mine", "10", "10"), quota("flood", "10", "10", is_parent=True))
    fold(state, "cluster", *(quota(f"f{number}", "0", "10", parent) for number in range(quotas)))
    fold(state, "cluster", *(pod(f"f{number}", f"f{number}", "1") for number in range(quotas)))
    caught_up(state, LedgerSettings(), 1)
    return state


def steps_of_a_pod(state: LedgerState) -> tuple[int, int]:
    """Returns the lines that a pod's arrival and its charge run, with the fold of what they record."""

    def arrive() -> None:
        fold(state, "cluster", pod("p", "mine", "1"))
        caught_up(state, LedgerSettings(), 1)

    def charged() -> None:
        requests = [ChargeRequest(epoch=1, cycle=1, seen={}, groups=(("p",),))]
        drafts, [response] = charge(state, requests, AdmissionRules())
        assert response.charged == {"p": "mine"}
        fold(state, "quota", *(draft.event for draft in drafts))
        caught_up(state, LedgerSettings(), 1)

    return steps_of(arrive)[1], steps_of(charged)[1]


def test_quotas_below_a_parent_of_their_own_cost_a_pod_of_another_tenant_nothing() -> None:
    few, many = steps_of_a_pod(flooded(FEW, "flood")), steps_of_a_pod(flooded(MANY, "flood"))
    assert many == pytest.approx(few, abs=MANY // 100)


def test_quotas_beside_that_of_another_tenant_cost_its_pods_nothing_where_all_requests_fit() -> None:
    few, many = steps_of_a_pod(flooded(FEW, "")), steps_of_a_pod(flooded(MANY, ""))
    assert many == pytest.approx(few, abs=MANY // 100)


def test_quotas_beside_that_of_another_tenant_cost_its_arrivals_only_the_record_of_what_changes() -> None:
    """Where the requests do not fit, a pod changes the runtime of every sibling, and each is recorded."""
    state = flooded(MANY, "", SCARCE)
    before = runtimes(state)
    (few_arrival, few_charge), (arrival, its_charge) = steps_of_a_pod(flooded(FEW, "", SCARCE)), steps_of_a_pod(state)
    assert its_charge == few_charge
    assert sum(size != before[name] for name, size in runtimes(state).items()) == MANY + 1
    assert arrival - few_arrival < 12 * (MANY - FEW)


def test_pods_that_arrive_while_many_runtimes_are_recorded_share_the_next_record() -> None:
    """So a tenant's pods wait for two such records at most, however many arrive."""

    def steps_of_arrivals(quotas: int, pods: int) -> int:
        state = flooded(quotas, "", SCARCE)

        def arrive() -> list[RecordedEvent]:
            fold(state, "cluster", *(pod(f"p{number}", "mine", "1") for number in range(pods)))
            return caught_up(state, LedgerSettings(), 1)

        records, lines = steps_of(arrive)
        assert [type(record.event) for record in records].count(RuntimeRecomputed) == 1
        return lines

    few, many = (steps_of_arrivals(quotas, 9) - steps_of_arrivals(quotas, 3) for quotas in (FEW, MANY))
    assert many < 2 * few


def test_the_statuses_of_many_quotas_are_written_in_parts_between_which_charges_are_decided() -> None:
    few, many = flooded(FEW, "", SCARCE), flooded(MANY, "", SCARCE)
    drafts, lines = steps_of(lambda: statuses(many, SECOND))
    assert len(drafts) == MAX_OBJECTS
    assert lines == steps_of(lambda: statuses(few, SECOND))[1]
    metrics = QuotaMetrics(CollectorRegistry())
    metrics.update(many)
    assert 0 < metrics.page().count(b'field="min"') <= MAX_QUOTAS
    now = SECOND
    while many.published.changed:
        before = len(many.published.changed)
        drafts = statuses(many, now)
        fold(many, "quota", *(draft.event for draft in drafts))
        assert drafts or len(many.published.changed) < before
        now += SECOND
    assert len(many.published.patches) == MANY


def runtimes(state: LedgerState) -> dict[str, int]:
    return {info.name: info.runtime.get("cpu", 0) for info in state.projection.trees[""].quotas.values()}
