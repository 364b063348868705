"""The budget of evictions: what exceeds it waits, and has one outcome later."""

import pytest
from msgspec.structs import replace

from services.gateway.effects.eviction_budget import Evicted, EvictionBudget, EvictionRecord, Limits, breaks
from services.gateway.effects.spend_budget_or_pause_eviction import EvictionPauses
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.cluster import (
    EvictionPaused,
    EvictionsHeld,
    EvictionsReleased,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from tests.support.gateway_objects import Log, kept, pod, state_after

NAMES = ("second", "first")
LIMITS = Limits(window_s=300, node=2, workload=3, namespace=4, cluster=5, breaker=3)


def observed(name: str, *, ends: bool = False) -> PodObserved:
    """An observation of a pod on the node n1."""
    body = pod(name, node="n1")
    if ends:
        body["metadata"]["deletionTimestamp"] = "2026-05-01T20:10:00Z"
    return PodObserved(pod=f"shop/{name}", pod_uid=body["metadata"]["uid"], object=kept("pods", body))


def record_of(*events: tuple[int, Event]) -> EvictionRecord:
    """Folds events at instants in seconds; each is about another intent and, where it evicts, another pod."""
    record = EvictionRecord()
    for seq, (at_s, event) in enumerate(events, 1):
        is_evicted = isinstance(event, PodEvicted) and event.pod_uid == "u"
        about = replace(event, pod_uid=f"u{seq}") if is_evicted else event
        record.apply(RecordedEvent("cluster", seq, about, at_s * SECOND, Cause("quota", seq)))
    return record


def evicted(node: str, workload: str = "") -> PodEvicted:
    """The outcome of an eviction that spent budget."""
    return PodEvicted(pod="shop/web", pod_uid="u", node=node, workload=workload)


def admit(record: EvictionRecord, now_s: int, node: str = "n", workload: str = "", namespace: str = "shop") -> str:
    """The reason why an eviction waits."""
    one = Evicted(0, node, namespace, workload, "other", Cause("quota", 99))
    return EvictionBudget(record, LIMITS, (), now_s * SECOND).admit(one)


def test_each_scope_has_a_budget() -> None:
    assert admit(record_of((1, evicted("n")), (2, evicted("n"))), 3) == "node n: 2 evictions in 300 s"
    three = record_of(*((1, evicted(f"n{i}", "Job/a")) for i in range(3)))
    assert admit(three, 3, workload="Job/a").startswith("workload shop/Job/a")
    assert admit(three, 3, workload="Job/b") == ""
    four = record_of(*((1, evicted(f"n{i}")) for i in range(4)))
    assert admit(four, 3).startswith("namespace shop")
    assert admit(four, 3, namespace="other") == ""
    assert admit(record_of(*((1, evicted(f"n{i}")) for i in range(5))), 3, namespace="other").startswith("cluster")


def test_evictions_of_pods_without_a_node_spend_the_other_budgets() -> None:
    waited = PodEvicted(pod="shop/web", pod_uid="u", workload="Job/a", without_node=True)
    three = record_of(*((1, waited) for _ in range(3)))
    assert admit(three, 3, node="") == ""
    assert admit(three, 3, node="", workload="Job/a").startswith("workload shop/Job/a")
    assert admit(record_of(*((1, waited) for _ in range(5))), 3, node="", namespace="other").startswith("cluster")


def test_the_eviction_of_a_pod_without_a_node_is_recorded_as_one_that_spends() -> None:
    log = Log()
    body = pod("first", uid="uid-of-first")
    log.append("cluster", PodObserved(pod="shop/first", pod_uid="uid-of-first", object=kept("pods", body)))
    intent = EvictionRequested(pod="shop/first", pod_uid="uid-of-first", reason="r")
    cause = log.append("slo", intent)
    state = state_after(log.in_order([]))
    pauses = EvictionPauses(LIMITS, lambda _draft: None)
    pauses.begin_round(state, 1)
    assert not pauses.must_wait(state, cause, intent)
    outcome = pauses.outcome(cause, PodEvicted(pod="shop/first", pod_uid="uid-of-first"))
    state.apply(RecordedEvent("cluster", 3, outcome, 3, cause))
    assert [one.pod_uid for one in state.evictions.evicted.values()] == ["uid-of-first"]


def test_the_window_moves_and_a_release_begins_anew() -> None:
    record = record_of((1, evicted("n")), (2, evicted("n")))
    assert admit(record, 302) == ""
    released = record_of((1, evicted("n")), (2, evicted("n")), (3, EvictionsReleased(by="ops", reason="drain")))
    assert admit(released, 4) == ""


def test_a_release_also_ends_what_a_clock_that_was_ahead_has_spent() -> None:
    ahead = (evicted("n"), evicted("n"))
    record = record_of(*((9_000, one) for one in ahead), (10, EvictionsReleased(by="ops", reason="clock")))
    assert admit(record, 11) == ""


def test_a_pod_counts_once_however_many_services_requested_its_eviction() -> None:
    twice = PodEvicted(pod="shop/web", pod_uid="same", node="n")
    record = record_of((1, twice), (2, twice))
    assert admit(record, 3) == ""
    assert record.counts(Cause("quota", 1), "same")
    assert not record.counts(Cause("quota", 2), "same")


def test_an_eviction_in_flight_spends_budget() -> None:
    in_flight = [Evicted(0, "n", "shop", "", f"u{number}", Cause("quota", number)) for number in range(2)]
    budget = EvictionBudget(record_of(), LIMITS, in_flight, SECOND)
    assert budget.admit(Evicted(0, "n", "shop", "", "other", Cause("quota", 9))).startswith("node n")
    assert budget.admit(Evicted(0, "m", "shop", "", "other", Cause("quota", 9))) == ""


def test_a_hold_pauses_all_until_it_is_released() -> None:
    held = EvictionsHeld(by="ops", reason="checking")
    assert admit(record_of((1, held)), 2) == "evictions are held by ops: checking"
    assert admit(record_of((1, held), (2, EvictionsReleased(by="ops", reason="fine"))), 3) == ""


def breaks_with(record: EvictionRecord, *pausing: int, pods: int = 9) -> bool:
    """Returns the breaker's decision while these evictions are being paused, each of one of so many pods."""
    causes = [Cause("quota", number) for number in pausing]
    return breaks(record, causes, lambda cause: f"u{cause.seq % pods}", LIMITS)


def test_the_breaker_counts_what_waits_since_the_newest_release() -> None:
    paused = EvictionPaused(pod="shop/web", pod_uid="u", reason="node")
    record = record_of((1, paused), (2, paused))
    assert not breaks_with(record)
    assert breaks_with(record, 5)
    assert not breaks_with(record_of((1, paused), (2, paused), (3, EvictionsReleased(by="o", reason=""))), 5)


def test_the_breaker_counts_a_pod_once_however_often_its_eviction_is_requested() -> None:
    paused = EvictionPaused(pod="shop/web", pod_uid="u", reason="node")
    record = record_of(*((1, paused) for _ in range(40)))
    assert not breaks_with(record, 41, 42, pods=2)
    assert breaks_with(record, 41, 42, pods=3)


def drafted_with(names: tuple[str, ...]) -> list[str]:
    """Returns the types that are drafted when the evictions of these pods, one after another, are requested at once."""
    log = Log()
    for name in dict.fromkeys(names):
        log.append("cluster", observed(name))
    intents = [EvictionRequested(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", reason="r") for name in names]
    causes = [log.append("quota", intent) for intent in intents]
    state = state_after(log.in_order([]))
    drafts: list[Draft] = []
    pauses = EvictionPauses(LIMITS._replace(node=1), drafts.append)
    pauses.begin_round(state, 1)
    assert [pauses.must_wait(state, *each) for each in zip(causes, intents, strict=True)].count(False) == 1
    pauses.break_if_many(state)
    return [type(draft.event).__name__ for draft in drafts]


def test_evictions_that_are_requested_again_while_they_wait_hold_no_others() -> None:
    again = ("a", "b", "c", *("b", "c") * 5)
    assert set(drafted_with(again)) == {"EvictionPaused"}
    assert drafted_with(("a", "b", "c", "d"))[-1] == "EvictionsHeld"


def test_an_eviction_spends_the_budget_of_the_node_to_which_its_pod_was_bound_before_any_watch_showed_that() -> None:
    log = Log()
    log.append("cluster", observed("second"))
    log.append("cluster", PodObserved(pod="shop/first", pod_uid="u1", object=kept("pods", pod("first", uid="u1"))))
    placed = log.append("scheduling", PodPlaced(pod="shop/first", pod_uid="u1", node="n1", cycle=1, request={}))
    first, second = (
        EvictionRequested(pod=f"shop/{name}", pod_uid=uid, reason="r")
        for name, uid in (("first", "u1"), ("second", "uid-of-second"))
    )
    first_cause, second_cause = log.append("quota", first), log.append("slo", second)
    state = state_after(log.in_order([]))
    pauses = EvictionPauses(LIMITS._replace(node=1), lambda _draft: None)
    pauses.outcome(placed, PodBound(pod="shop/first", pod_uid="u1", node="n1"))
    pauses.begin_round(state, 1)
    assert not pauses.must_wait(state, first_cause, first)
    assert pauses.must_wait(state, second_cause, second)
    outcome = pauses.outcome(first_cause, PodEvicted(pod="shop/first", pod_uid="u1"))
    assert isinstance(outcome, PodEvicted)
    assert outcome.node == "n1"


def test_a_paused_eviction_stays_due_until_its_outcome_and_snapshots_keep_it() -> None:
    log = Log()
    cause = log.append("quota", EvictionRequested(pod="shop/web-0", pod_uid="uid-of-web-0", reason="over-use"))
    state = state_after(log.in_order([]))
    state.apply(RecordedEvent("cluster", 1, EvictionPaused(pod="shop/web-0", pod_uid="u", reason="x"), 1, cause))
    assert cause in state.intents.one_shots
    assert cause in state.evictions.paused
    restored = state_after([])
    restored.restore(state.encode())
    assert restored.encode() == state.encode()
    state.apply(RecordedEvent("cluster", 2, evicted("n"), 2, cause))
    assert cause not in state.intents.one_shots
    assert not state.evictions.paused
    assert [one.cause for one in state.evictions.evicted.values()] == [cause]


@pytest.mark.parametrize("seen", [PodDeleted(pod="shop/first", pod_uid="uid-of-first"), observed("first", ends=True)])
def test_what_a_crash_kept_out_of_the_log_spends_budget_before_anything_else_is_evicted(seen: Event) -> None:
    log = Log()
    log.append("cluster", observed("second"), observed("first"))
    second, first = (EvictionRequested(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", reason="r") for name in NAMES)
    next_one, evicted_before = log.append("quota", second), log.append("slo", first)
    state = state_after(log.in_order([]))
    drafts: list[Draft] = []
    pauses = EvictionPauses(LIMITS._replace(node=1), drafts.append)
    pauses.started(state)
    log.append("cluster", seen)
    state.apply(log.contexts["cluster"][-1])
    pauses.begin_round(state, 1)
    assert pauses.must_wait(state, next_one, second)
    assert [type(draft.event) for draft in drafts] == [EvictionPaused]
    outcome = pauses.outcome(evicted_before, PodEvicted(pod="shop/first", pod_uid="uid-of-first"))
    assert isinstance(outcome, PodEvicted)
    assert outcome.node == "n1"


def test_what_a_crash_kept_out_of_the_log_spends_budget_where_its_pod_was_gone_before_the_next_start() -> None:
    log = Log()
    log.append("cluster", observed("second"), observed("first"))
    second, first = (EvictionRequested(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", reason="r") for name in NAMES)
    next_one, evicted_before = log.append("quota", second), log.append("slo", first)
    log.append("cluster", PodDeleted(pod="shop/first", pod_uid="uid-of-first"))
    state = state_after(log.in_order([]))
    pauses = EvictionPauses(LIMITS._replace(namespace=1), lambda _: None)
    pauses.started(state)
    pauses.begin_round(state, 1)
    assert pauses.must_wait(state, next_one, second)
    outcome = pauses.outcome(evicted_before, PodEvicted(pod="shop/first", pod_uid="uid-of-first"))
    assert isinstance(outcome, PodEvicted)
    assert outcome.without_node
