"""The ledger's state and decisions: objects in, events out, in any order of the logs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.quota_ledger.accounting.verify_invariants_by_replay import holds, verify
from services.quota_ledger.decide.decide_ledger_events import decide
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import Cause, RecordedEvent
from shared.events.cluster import (
    BindRejected,
    NodeDeleted,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.quota import PodCharged, PodReleased, QuotaDeleted, QuotaRejected, RevocationDecided
from shared.events.scheduling import CycleDecided, PlacementReleased, PlacementReserved, PodOutcome, PodPlaced
from shared.kube.elastic_quota import DEFAULT, PREFIX
from shared.kube.instants import SECOND
from tests.support.hypothesis_examples import examples
from tests.support.interleavings import interleaved
from tests.support.quota_logs import SETTINGS, Logs, node, pod, quota, two_teams


def test_a_team_borrows_from_the_demand_that_the_other_lacks_and_returns_it() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"))
    assert (logs.runtime("a"), logs.runtime("b")) == ({"cpu": 8000}, {"cpu": 0})
    logs.append("cluster", pod("p2", "b", "5"))
    assert (logs.runtime("a"), logs.runtime("b")) == ({"cpu": 5000}, {"cpu": 5000})
    assert logs.state.projection.trees[""].quotas["a"].used == {"cpu": 8000}
    assert verify(logs.records).findings == []


def test_a_pod_of_ours_is_charged_when_it_is_placed_and_not_when_that_is_refused() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "2"))
    placed = PodPlaced(pod_uid="p1", pod="ns/p1", node="n1", cycle=1, request={"cpu": 2000})
    [charged, *_] = logs.append("scheduling", CycleDecided(cycle=1, seen={"cluster": 4}), placed)
    assert charged == PodCharged(pod_uid="p1", pod="ns/p1", quota="a", request={"cpu": 2000}, cycle=1)
    logs.append("cluster", BindRejected(pod="ns/p1", pod_uid="p1", reason="no"), cause=Cause("scheduling", 2))
    assert not logs.state.projection.pods["p1"].charged


def test_held_capacity_is_charged_until_it_is_released() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "2"))
    held = PlacementReserved(
        holder_uid="p1", holder="ns/p1", kind="Pod", node="n1", cycle=1, waits_for="unit", request={"cpu": 2000}
    )
    [charged, *_] = logs.append("scheduling", CycleDecided(cycle=1, seen={"cluster": 4}), held)
    assert charged == PodCharged(pod_uid="p1", pod="ns/p1", quota="a", request={"cpu": 2000}, cycle=1)
    released = PlacementReleased(holder_uid="p1", holder="ns/p1", kind="Pod", node="n1", reason="it waited too long")
    logs.append("scheduling", released)
    assert not logs.state.projection.pods["p1"].charged


def test_the_reserve_pod_of_a_reservation_is_in_no_quota_whatever_is_read_first() -> None:
    logs = two_teams()
    held = PlacementReserved(
        holder_uid="r1", holder="r1", kind="Reservation", node="n1", cycle=1, waits_for="owners", request={}
    )
    cycle = CycleDecided(cycle=1, seen={"cluster": 99}, pods=(PodOutcome("r1", 0, "n1"),), reservations=("r1",))
    logs.append("scheduling", cycle, held)
    assert logs.state.placements == {}


def root_of_a_tree(total: str) -> ObjectObserved:
    event = quota("root-a", "0", "10", is_parent=True)
    event.object["metadata"]["labels"] |= {PREFIX + "tree-id": "tree-a", PREFIX + "is-root": "true"}
    event.object["metadata"]["annotations"] = {PREFIX + "total-resource": f'{{"cpu":"{total}"}}'}
    return event


@pytest.mark.parametrize(("multi_tree", "expected"), [(True, 7000), (False, 10_000)])
def test_a_root_takes_its_total_from_the_default_tree_only_where_it_has_a_tree(multi_tree: bool, expected: int) -> None:
    logs = Logs(LedgerSettings(multi_tree=multi_tree))
    logs.append("cluster", node("n1", "10"), root_of_a_tree("3"))
    assert logs.state.projection.trees[""].total["cpu"] == expected


def test_pods_of_no_quota_take_from_what_is_shared() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "", "4", at="n1"))
    assert logs.state.projection.pods["p1"].quota == DEFAULT
    assert logs.state.projection.trees[""].capacity["cpu"] == 6000


def test_an_ended_pod_and_a_lost_node_count_no_more() -> None:
    logs = two_teams()
    logs.append("cluster", node("n2", "6"), pod("p1", "a", "8", at="n1"))
    events = logs.append("cluster", pod("p1", "a", "8", at="n1", phase="Succeeded"))
    assert events[0] == PodReleased(pod_uid="p1", pod="ns/p1", quota="a", reason="terminal")
    logs.append("cluster", NodeDeleted(node="n2", node_uid=""), PodDeleted(pod="ns/p1", pod_uid="p1"))
    assert logs.state.projection.trees[""].capacity["cpu"] == 10_000


def test_a_quota_that_breaks_a_rule_keeps_its_last_good_declaration() -> None:
    logs = Logs()
    logs.append("cluster", quota("org", "8", "20", is_parent=True), quota("dev", "5", "9", "org"))
    [rejected] = logs.append("cluster", quota("dev", "9", "9", "org"))
    assert isinstance(rejected, QuotaRejected)
    assert rejected.code == "minSum"
    assert logs.state.projection.lookup.quotas["dev"].min == {"cpu": 5000}
    logs.append("cluster", quota("org", "9", "20", is_parent=True))
    assert logs.state.projection.lookup.quotas["dev"].min == {"cpu": 9000}
    assert logs.state.projection.rejected == {}


def test_quotas_without_any_amount_end_no_ledger() -> None:
    above, below = quota("org", "0", "0", is_parent=True), quota("dev", "0", "0", "org")
    for each in (above, below):
        each.object["spec"] = {}
    logs = Logs()
    logs.append("cluster", node("n1", "10"), above, below, quota("other", "1", "5"), pod("p1", "other", "2"))
    assert {"org", "dev"} <= logs.state.projection.lookup.quotas.keys()
    assert logs.runtime("other") == {"cpu": 2_000}


def test_a_deleted_quota_goes_and_its_pods_count_in_the_default_group() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "2", at="n1"))
    gone = ObjectDeleted(resource="elasticquotas.scheduling.sigs.k8s.io", name="quotas/a", uid="a")
    assert QuotaDeleted(quota="a") in logs.append("cluster", gone)
    assert logs.state.projection.pods["p1"].quota == DEFAULT
    assert logs.state.projection.pods["p1"].charged
    assert verify(logs.records).findings == []


def test_a_tree_of_its_own_takes_its_total_from_the_default_one() -> None:
    logs = two_teams()
    root = quota("gpu", "4", "4", is_parent=True)
    root.object["metadata"]["labels"] |= {PREFIX + "is-root": "true", PREFIX + "tree-id": "t1"}
    root.object["metadata"]["annotations"] = {PREFIX + "total-resource": '{"cpu":"4"}'}
    leaf = quota("x", "1", "4", "gpu")
    leaf.object["metadata"]["labels"] |= {PREFIX + "tree-id": "t1"}
    logs.append("cluster", root, leaf, pod("p1", "x", "3"))
    assert logs.runtime("x") == {"cpu": 3000}
    assert logs.state.projection.trees[""].capacity["cpu"] == 6000
    root.object["metadata"]["annotations"] = {PREFIX + "total-resource": "{bad"}
    logs.append("cluster", root)
    assert logs.state.projection.trees[""].capacity["cpu"] == 6000
    for name in ("x", "gpu"):
        gone = ObjectDeleted(resource="elasticquotas.scheduling.sigs.k8s.io", name=f"quotas/{name}", uid=name)
        logs.append("cluster", gone)
    assert logs.state.projection.trees[""].capacity["cpu"] == 10_000
    assert logs.state.projection.trees["t1"].total == {}
    assert verify(logs.records).findings == []


def test_over_use_is_tolerated_for_a_while_and_then_the_least_important_pods_go() -> None:
    logs = Logs(LedgerSettings(revoke=True, revoke_after_s=10))
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10"), quota("b", "5", "10"))
    logs.append("cluster", pod("x", "a", "4", at="n1", priority=1), pod("y", "a", "4", at="n1", priority=2))
    logs.append("cluster", pod("z", "b", "5"))
    logs.now_ns += 10 * SECOND
    assert logs.append("cluster", node("n1", "10")) == []  # exactly as long is not longer
    logs.now_ns += 1
    decided, evicted = logs.append("cluster", node("n1", "10"))
    assert isinstance(decided, RevocationDecided)
    assert decided.pods == ("x",)
    assert isinstance(evicted, EvictionRequested)
    assert evicted.pod == "ns/x"


def leaving(observed: PodObserved) -> PodObserved:
    body = observed.object
    going = msgspec.structs.replace(body.metadata, deletion_timestamp="2026-07-24T06:52:45Z")
    return msgspec.structs.replace(observed, object=msgspec.structs.replace(body, metadata=going))


def test_a_terminating_pod_is_not_evicted_again_and_no_other_in_its_place() -> None:
    logs = Logs(LedgerSettings(revoke=True, revoke_after_s=10))
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10"), quota("b", "5", "10"), pod("w", "b", "5"))
    x, y, z = (pod(name, "a", "2", at="n1", priority=number) for number, name in enumerate("xyz", 1))
    v = pod("v", "a", "1", at="n1")
    logs.append("cluster", v, x, y, z)
    logs.now_ns += 11 * SECOND
    [decided, evicted] = logs.append("cluster", leaving(v))  # 7 of 5 are used, 1 of that is leaving
    assert isinstance(decided, RevocationDecided)
    assert isinstance(evicted, EvictionRequested)
    assert (decided.pods, evicted.pod) == (("x",), "ns/x")
    logs.now_ns += 11 * SECOND
    assert logs.append("cluster", leaving(x)) == []
    assert logs.state.projection.trees[""].quotas["a"].used == {"cpu": 7_000}


def test_what_a_snapshot_restores_decides_the_same() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"), pod("p2", "b", "5"), pod("p3", "", "1", at="n1"))
    other = LedgerState()
    other.restore(logs.state.encode())
    assert other.encode() == logs.state.encode()
    assert decide(other, SETTINGS, SECOND) == []
    assert other.projection.balances.by_account == logs.state.projection.balances.by_account
    assert [*holds(other.projection)] == []
    change = RecordedEvent("cluster", other.positions["cluster"] + 1, pod("p1", "a", "3", at="n1"), SECOND)
    for state in (other, logs.state):
        state.apply(change)
    assert decide(other, SETTINGS, SECOND) == decide(logs.state, SETTINGS, SECOND) != []


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pod_that_comes_back_under_its_uid_is_another_pod_in_any_interleaving(chance: Any) -> None:
    """Fault 12: a wrong cluster deleted all pods, the right one brought them back, and a rebuild of the ledger differed."""
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "2", at="n1", phase="Running"), pod("p2", "b", "5"))
    seen = logs.state.positions["cluster"]
    early = PodPlaced(pod_uid="p2", pod="ns/p2", node="n1", cycle=1, request={"cpu": 5000})
    logs.append("scheduling", CycleDecided(cycle=1, seen={"cluster": seen}), early)
    logs.append("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"), PodDeleted(pod="ns/p2", pod_uid="p2"))
    logs.append("cluster", pod("p1", "a", "2"), pod("p2", "b", "5"))
    seen = logs.state.positions["cluster"]
    late = PodPlaced(pod_uid="p1", pod="ns/p1", node="n1", cycle=2, request={"cpu": 2000})
    logs.append("scheduling", CycleDecided(cycle=2, seen={"cluster": seen}), late)
    state = LedgerState()
    for record in interleaved(logs.records, chance):
        state.apply(record)
    assert state.encode() == logs.state.encode()
    assert sorted(state.placements) == ["p1"], "p2 was placed before it was deleted"


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_interleaving_of_the_logs_ends_in_the_same_state(chance: Any) -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8"), pod("p2", "b", "5"))
    placed = PodPlaced(pod_uid="p1", pod="ns/p1", node="n1", cycle=1, request={"cpu": 8000})
    logs.append("scheduling", CycleDecided(cycle=1, seen={"cluster": 5}), placed)
    logs.append("cluster", BindRejected(pod="ns/p1", pod_uid="p1", reason="no"), cause=Cause("scheduling", 2))
    logs.append("cluster", quota("a", "3", "9"), PodDeleted(pod="ns/p2", pod_uid="p2"))
    state = LedgerState()
    for record in interleaved(logs.records, chance):
        state.apply(record)
    assert state.encode() == logs.state.encode()
    assert list(state.pods_to_update) == []
