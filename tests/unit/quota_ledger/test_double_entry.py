"""The books balance after every event of any history, and say what their events say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import checked, holds, verify
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import nonzero
from shared.events import RecordedEvent
from shared.events.quota import (
    CapacitySet,
    PodAttached,
    PodCharged,
    PodReleased,
    QuotaDeclared,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota
from tests.support.hypothesis_examples import examples
from tests.unit.quota_ledger.random_histories import History, histories


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_every_invariant_holds_after_every_event(history: History) -> None:
    projection = LedgerProjection()
    for record in history.records:
        assert list(checked(projection, record)) == []
        assert list(holds(projection)) == []


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_a_follower_that_computes_nothing_has_what_was_recorded(history: History) -> None:
    """RuntimeRecomputed has changes alone; folded one after the other they give every runtime and scaled min."""
    follower, posted = LedgerProjection(), LedgerProjection()
    for record in history.records:
        follower.fold(record.event)
        posted.apply(record.event)
        assert follower.balances.by_account == posted.balances.by_account, record
    ours, theirs = history.projection.trees[""].quotas, follower.trees[""].quotas
    for name, info in ours.items():
        assert (theirs[name].runtime, dict(theirs[name].scaled_min)) == (info.runtime, dict(info.scaled_min)), name
    assert follower.balances.by_account == history.projection.balances.by_account


@pytest.mark.parametrize("guarantees", [False, True])
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_what_is_kept_by_the_difference_is_what_is_computed_from_nothing(guarantees: bool, data: st.DataObject) -> None:
    """I12, I13, I15: sums and runtimes after any history equal those of a tree built at once, in another order."""
    history = data.draw(histories(guarantees=guarantees))
    found = history.projection.trees[""]
    fresh = QuotaTree(guarantees=guarantees)
    fresh.set_total(found.total)
    for info in sorted(found.quotas.values(), key=lambda each: each.name, reverse=True):
        if info.name != ROOT:
            fresh.add_quota(info.declared)
    for info in found.quotas.values():
        fresh.add_request(info.name, info.self_request, info.self_np_request)
        fresh.add_used(info.name, info.self_used, info.self_np_used)
    fresh.refresh_runtimes()
    fresh.changed_levels.update(fresh.quotas)
    assert fresh._compute_by_level() == {}  # level by level, as it is written down, comes to the same
    assert found.capacity == fresh.capacity
    for name, info in found.quotas.items():
        other = fresh.quotas[name]
        assert info.runtime == other.runtime, name
        assert info.scaled_min == other.scaled_min, name
        for field in ("request", "used", "allocated", "guaranteed"):
            assert nonzero(getattr(info, field)) == nonzero(getattr(other, field)), (name, field)


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_shares_keep_what_is_promised_at_every_level(history: History) -> None:
    """I3 to I11 of spec/quota.md 7.4, on settled trees with scaling."""
    tree = history.projection.trees[""]
    for parent in tree.quotas.values():
        children = [tree.quotas[name] for name in parent.children if name not in RESERVED]
        for resource in tree.level_resources(parent.name):
            capacity = tree.level_capacity(parent.name).get(resource)
            if capacity is None or not children or parent.name in RESERVED:
                continue
            scaled_mins = [child.scaled_min.get(resource, 0) for child in children]
            demands = [child.demand.get(resource, 0) for child in children]
            got = [child.runtime[resource] for child in children]
            lends = [child.lends for child in children]
            weights = [child.declared.weight.get(resource, 0) for child in children]
            certain = [
                floor if demand > floor or not lend else demand
                for floor, demand, lend in zip(scaled_mins, demands, lends, strict=True)
            ]
            assert sum(got) <= max(capacity, 0)  # I4, which implies I3
            rows = list(zip(scaled_mins, demands, got, lends, weights, certain, strict=True))
            for floor, demand, runtime, lend, _, base in rows:
                assert base <= runtime <= max(base, demand)  # I5
                assert runtime >= min(demand, floor)  # I6
                assert runtime >= floor or (lend and runtime == demand)  # I7, I8
            borrowed = sum(max(0, runtime - floor) for floor, _, runtime, *_ in rows)
            lent = sum(max(0, floor - runtime) for floor, _, runtime, *_ in rows)
            idle = capacity - sum(got)
            assert capacity - sum(scaled_mins) + lent == borrowed + idle  # I9
            if idle > 0:
                assert all(runtime >= demand for _, demand, runtime, _, weight, _ in rows if weight > 0)  # I10
            if sum(demands) <= capacity and all(weights):
                assert all(runtime in (demand, floor) for floor, demand, runtime, *_ in rows)  # I11


def log(*events: object) -> list[RecordedEvent]:
    return [RecordedEvent("quota", seq, event, seq) for seq, event in enumerate(events, 1)]  # type: ignore[arg-type]


TEAM = DeclaredQuota(name="team", min={"cpu": 5}, max={"cpu": 10}, weight={"cpu": 10})
LOG = (
    CapacitySet(tree="", total={"cpu": 8}),
    QuotaDeclared(quota="team", declared=TEAM),
    PodAttached(pod_uid="u1", pod="ns/a", quota="team", request={"cpu": 3}),
    RuntimeRecomputed(tree="", runtimes={"cpu": {"team": 3}}),
    PodCharged(pod_uid="u1", pod="ns/a", quota="team", request={"cpu": 3}, cycle=1),
)


def test_a_charge_moves_from_pending_to_used_once_however_often_it_is_requested() -> None:
    report = verify(log(*LOG, PodCharged(pod_uid="u1", pod="ns/a", quota="team", request={"cpu": 3}, cycle=2)))
    assert report.findings == []
    assert report.projection.pods["u1"].cycle == 2
    assert {name: balance for (_, _, name), balance in report.projection.balances.by_account.items()} == {
        "supply": {"cpu": -8},
        "hold:koordinator-root-quota": {"cpu": 5},
        "hold:team": {"cpu": 3},
        "pods": {"cpu": -3},
        "usedP:team": {"cpu": 3},
    }


def test_a_released_pod_leaves_nothing_behind() -> None:
    report = verify(log(*LOG, PodReleased(pod_uid="u1", pod="ns/a", quota="team", reason="deleted")))
    assert report.findings == []
    quotas = [name for _, _, name in report.projection.balances.by_account]
    assert quotas == ["supply", "hold:koordinator-root-quota", "hold:team"]


def test_a_runtime_that_does_not_follow_names_its_event() -> None:
    forged = RuntimeRecomputed(tree="", runtimes={"cpu": {"team": 4}})
    findings = verify(log(*LOG[:3], forged)).findings
    assert [(finding.seq, finding.rule) for finding in findings] == [(4, "I15")]
    assert "recorded as 4 cpu, computed as 3" in findings[0].what


def test_a_gap_in_the_log_is_found() -> None:
    records = [*log(*LOG)[:2], *log(*LOG)[3:]]
    assert "I19" in [finding.rule for finding in verify(records).findings]
