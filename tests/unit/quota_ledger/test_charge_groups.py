"""The pods of a group are charged together or not at all, whatever comes before and behind it in the same append."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.quota_ledger.accounting.verify_invariants_by_replay import holds
from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.quota_charge import ChargeRequest, ChargeResponse
from shared.events import RecordedEvent
from shared.events.quota import PodAdmissionDecided, PodCharged
from tests.support.hypothesis_examples import examples
from tests.support.quota_logs import Logs, node, pod, quota


def team(*cpus: int, limit: str = "10") -> Logs:
    """Pods p0, p1, ... of a quota."""
    logs = Logs()
    logs.append("cluster", node("n1", "100"), quota("a", limit, limit))
    logs.append("cluster", *(pod(f"p{n}", "a", str(cpu)) for n, cpu in enumerate(cpus)))
    return logs


def request_charge(logs: Logs, *groups: tuple[str, ...], cycle: int = 1) -> ChargeResponse:
    """Charge, append, and check that the books balance after every event."""
    state: LedgerState = logs.state
    drafts, [answer] = charge(state, [ChargeRequest(epoch=1, cycle=cycle, seen={}, groups=groups)], AdmissionRules())
    for draft in drafts:
        state.apply(RecordedEvent("quota", state.positions.get("quota", 0) + 1, draft.event, 1))
        assert [*holds(state.projection)] == []
    events = [draft.event for draft in drafts]
    assert {event.pod_uid for event in events if isinstance(event, PodCharged)} == answer.charged.keys()
    assert {event.pod_uid for event in events if isinstance(event, PodAdmissionDecided)} == answer.refused.keys()
    return answer


def used(logs: Logs) -> int:
    return logs.state.projection.trees[""].quotas["a"].used.get("cpu", 0)


def test_a_group_that_has_room_only_in_part_is_refused_whole_and_leaves_its_room_to_those_behind_it() -> None:
    logs = team(4, 4, 4, 6)
    answer = request_charge(logs, ("p0", "p1", "p2"), ("p3",))
    assert answer.refused.keys() == {"p0", "p1", "p2"}
    assert answer.charged == {"p3": "a"}
    assert {short.short["cpu"] for short in answer.refused.values()} == {2000}
    assert used(logs) == 6000


def test_a_group_that_fits_is_charged_whole_and_not_twice_when_repeated() -> None:
    logs = team(4, 4, 2)
    assert request_charge(logs, ("p0", "p1", "p2")).charged.keys() == {"p0", "p1", "p2"}
    assert used(logs) == 10_000
    again = request_charge(logs, ("p0", "p1", "p2"), cycle=2)
    assert again.charged.keys() == {"p0", "p1", "p2"}
    assert used(logs) == 10_000


def test_of_a_group_one_of_whose_pods_is_charged_already_the_others_need_room_of_their_own() -> None:
    logs = team(6, 4, 2)
    request_charge(logs, ("p0",))
    assert request_charge(logs, ("p0", "p1"), cycle=2).charged.keys() == {"p0", "p1"}
    refused = request_charge(logs, ("p1", "p2"), cycle=3)
    assert refused.refused.keys() == {"p1", "p2"}, "p1 keeps the charge of the cycle before until that is over"
    assert used(logs) == 10_000


def test_a_pod_that_is_gone_leaves_the_others_of_its_group_their_charge() -> None:
    logs = team(6)
    assert request_charge(logs, ("gone", "p0")).charged == {"p0": "a"}


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(1, 20))
def test_whatever_the_groups_none_is_charged_in_part_and_the_quota_is_not_exceeded(
    sizes: list[list[int]], limit: int
) -> None:
    logs = team(*(cpu for group in sizes for cpu in group), limit=str(limit))
    groups, at = [], 0
    for group in sizes:
        groups.append(tuple(f"p{at + n}" for n in range(len(group))))
        at += len(group)
    answer = request_charge(logs, *groups)
    left = limit
    for names, cpus in zip(groups, sizes, strict=True):
        fits = sum(cpus) <= left
        left -= sum(cpus) if fits else 0
        assert {name in answer.charged for name in names} == {fits}
        assert {name in answer.refused for name in names} == {not fits}
    assert used(logs) == (limit - left) * 1000
