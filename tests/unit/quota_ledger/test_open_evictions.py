"""A pod whose eviction is requested counts as gone until the request has its outcome; then it may be revoked again."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.quota_ledger.retention_carry_forward import CARRY_FORWARD
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.gang import POD_GROUP_LABEL
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    EvictionFailed,
    EvictionPaused,
    EvictionRejected,
    EvictionSuppressed,
    IntentRefused,
    MissingPermission,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
)
from shared.events.intents import EvictionRequested
from shared.events.quota import RevocationDecided
from shared.kube.instants import SECOND
from shared.kube.resource_names import POD_GROUPS
from shared.log.retention_carry_forward import Kept
from tests.support.hypothesis_examples import examples
from tests.support.interleavings import interleaved
from tests.support.quota_logs import Logs, labelled, node, pod, quota

X: dict[str, Any] = {"pod": "ns/x", "pod_uid": "x"}
OUTCOMES: tuple[Event, ...] = (
    EvictionRejected(**X, reason="its disruption budget"),
    EvictionFailed(**X, reason="it is 601 s old"),
    EvictionSuppressed(**X),
    MissingPermission(name="ns/x", rule="create pods/eviction", pod_uid="x"),
    IntentRefused(intent="EvictionRequested", resource="pods", name="ns/x", reason="no right", pod_uid="x"),
)


def overused(*pods: Event) -> Logs:
    """Quota a may use 5 of 10 cores."""
    logs = Logs(LedgerSettings(revoke=True, revoke_after_s=10))
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10"), quota("b", "5", "10"), pod("w", "b", "5"))
    logs.append("cluster", *pods)
    return logs


def revoked(logs: Logs, *happened: Event) -> tuple[str, ...]:
    """Returns the uids of the pods that are revoked 11 s later, when something has happened."""
    logs.now_ns += 11 * SECOND
    events = logs.append("cluster", *happened)
    decided = [event.pods for event in events if isinstance(event, RevocationDecided)]
    assert len(decided) <= 1
    assert [event.pod_uid for event in events if isinstance(event, EvictionRequested)] == [*sum(decided, ())]
    return decided[0] if decided else ()


def requests_of(logs: Logs, uid: str) -> list[Cause]:
    return [
        Cause(record.context, record.seq)
        for record in logs.records
        if isinstance(record.event, EvictionRequested) and record.event.pod_uid == uid
    ]


def three_pods() -> Logs:
    return overused(*(pod(name, "a", "2", at="n1", priority=number) for number, name in enumerate("xyz", 1)))


def member(name: str, of: str = "a") -> Event:
    return labelled(pod(name, of, "2", at="n1"), **{POD_GROUP_LABEL: "train"})


def gang(minimum: int) -> ObjectObserved:
    raw = {"metadata": {"name": "train", "namespace": "ns", "uid": "train"}, "spec": {"minMember": minimum}}
    return ObjectObserved(resource=POD_GROUPS, name="ns/train", uid="train", object=raw)


def test_a_pod_whose_eviction_waits_for_budget_is_not_requested_again_and_no_other_in_its_place() -> None:
    logs = three_pods()
    assert revoked(logs) == ("x",)
    logs.append("cluster", EvictionPaused(**X, reason="4 evictions of namespace ns in an hour"))
    assert [revoked(logs) for _ in range(50)] == [()] * 50
    assert logs.state.projection.trees[""].quotas["a"].used == {"cpu": 6_000}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_a_pod_that_was_not_evicted_may_be_revoked_again(outcome: Event) -> None:
    logs = three_pods()
    assert revoked(logs) == ("x",)
    [request] = requests_of(logs, "x")
    logs.append("cluster", outcome, cause=request)
    assert revoked(logs) == ("x",)
    assert revoked(logs) == ()
    assert len(requests_of(logs, "x")) == 2


def test_an_outcome_of_another_service_s_eviction_ends_no_request() -> None:
    logs = three_pods()
    revoked(logs)
    [request] = requests_of(logs, "x")
    logs.append("cluster", OUTCOMES[0], cause=Cause("scheduling", request.seq))
    assert revoked(logs) == ()


def test_more_pods_are_revoked_when_those_that_leave_are_not_enough() -> None:
    logs = three_pods()
    assert revoked(logs) == ("x",)
    assert revoked(logs, pod("v", "a", "1", at="n1", priority=5)) == (), "5 of 5 are left"
    assert revoked(logs, pod("u", "a", "1", at="n1", priority=5)) == ("y",)


def test_members_beyond_the_minimum_are_counted_without_those_that_leave() -> None:
    logs = overused(*(member(f"g{number}") for number in range(4)), gang(2))
    assert revoked(logs) == ("g1", "g0")
    big = pod("big", "a", "4", at="n1", priority=9)
    assert revoked(logs, big) == ("g2", "g3"), "the gang ends as a whole"
    assert revoked(logs) == ()


def test_a_member_in_another_quota_is_not_requested_again_while_its_request_is_open() -> None:
    logs = overused(*(member(f"g{number}") for number in range(3)), member("other", of=""), gang(4))
    assert revoked(logs) == ("g0", "g1", "g2", "other")
    for uid in ("g0", "g1", "g2"):
        [request] = requests_of(logs, uid)
        logs.append("cluster", EvictionRejected(pod=f"ns/{uid}", pod_uid=uid, reason="no"), cause=request)
    assert revoked(logs) == ("g0", "g1", "g2")


@cache
def history() -> Sequence[RecordedEvent]:
    """Evictions that wait, end, are repeated, and one of a pod that comes back under its uid."""
    logs = three_pods()
    revoked(logs)
    logs.append("cluster", OUTCOMES[0], cause=requests_of(logs, "x")[0])
    revoked(logs)
    logs.append("cluster", PodEvicted(**X, node="n1"), cause=requests_of(logs, "x")[1])
    logs.append("cluster", PodDeleted(**X), pod("x", "a", "2", at="n1", priority=1))
    revoked(logs)
    logs.append("cluster", pod("u", "a", "2", at="n1", priority=1))
    revoked(logs)
    logs.append("cluster", PodEvicted(pod="ns/u", pod_uid="u", node="n1"), cause=requests_of(logs, "u")[0])
    assert logs.state.evictions.requested == {requests_of(logs, "x")[2].seq: "x"}
    return logs.records


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False))
def test_requests_and_outcomes_end_in_the_same_state_in_any_interleaving(chance: Any) -> None:
    state = LedgerState()
    for record in interleaved(history(), chance):
        state.apply(record)
        restored = LedgerState()
        restored.restore(state.encode())
        assert restored.encode() == state.encode()
    expected = LedgerState()
    for record in history():
        expected.apply(record)
    assert state.encode() == expected.encode()
    assert list(state.evictions.requested.values()) == ["x"]


def test_retention_keeps_each_request_without_an_outcome_and_no_other() -> None:
    state = LedgerState()
    for record in history():
        state.apply(record)
    holds = CARRY_FORWARD.holds(state, Kept(has=lambda _: True, since_ns=0))
    requests = [record for record in history() if isinstance(record.event, EvictionRequested)]
    assert len({CARRY_FORWARD.subject(record) for record in requests}) == len(requests) == 4
    assert [record.seq for record in requests if holds(record)] == list(state.evictions.requested)


def test_the_outcome_of_a_request_that_has_left_the_log_is_forgotten_whatever_is_read_first() -> None:
    end = RecordedEvent("cluster", 1, OUTCOMES[0], 0, Cause("quota", 7))
    first, last = LedgerState(), LedgerState()
    first.apply(end)
    for state in (first, last):
        state.positions["quota"] = 9
        state.history_begins("quota", 9)
    last.apply(end)
    assert first.encode() == last.encode()
    assert (first.evictions.requested, first.evictions.early) == ({}, {})
