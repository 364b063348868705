"""Quota on the scheduler's side: pods that need a charge, cycles with refused pods, and the pods let through the
gate."""

import random
from typing import Any

import pytest

from services.scheduler.cycle.cycle_plan import CyclePlan, PlacedPod, RefusedPod
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.framework.profile import Profile
from services.scheduler.queue.quota_gate import QuotaGate
from services.scheduler.quota.take_back_placements_without_quota import groups_to_charge, without_refused
from services.scheduler.state.packed_pod_observation import first_observation
from services.scheduler.state.pod_attempts_and_refusals import Attempt, Decisions
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import EXCEEDED, PLUGIN, UNREACHABLE
from services.scheduler.state.quota_view import QuotaView
from shared.events import Event, RecordedEvent
from shared.events.log import ConfigApplied
from shared.events.quota import (
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodReleased,
    QuotaDeclared,
    QuotaDeleted,
    RuntimeRecomputed,
)
from shared.events.scheduling import ClassEvaluated, CycleDecided, PodUnschedulable, QuotaShort
from shared.kube.elastic_quota import QUOTA_NAME, DeclaredQuota
from tests.support.scheduling_world import pod

LABELED = {QUOTA_NAME: "a"}


def view_of(*events: Event) -> QuotaView:
    view = QuotaView()
    for event in (ConfigApplied(source="", digest="", text="{}"), *events):
        append(view, event)
    return view


def append(view: QuotaView, *events: Event) -> None:
    for event in events:
        view.seq = getattr(view, "seq", 0) + 1  # type: ignore[attr-defined]  # the log's position, which a view does not need
        view.apply(RecordedEvent("quota", view.seq, event))  # type: ignore[attr-defined]


def declared(name: str, parent: str = "") -> QuotaDeclared:
    more: dict[str, Any] = {"parent": parent} if parent else {}
    return QuotaDeclared(quota=name, declared=DeclaredQuota(name=name, max={"cpu": 9000}, min={"cpu": 1000}, **more))


def attached(uid: str, cpu: int = 1000, quota: str = "a") -> PodAttached:
    return PodAttached(pod_uid=uid, pod=uid, quota=quota, request={"cpu": cpu})


def charged(uid: str) -> PodCharged:
    return PodCharged(pod_uid=uid, pod=uid, quota="a", request={"cpu": 1000})


def runtime(cpu: int) -> RuntimeRecomputed:
    return RuntimeRecomputed(tree="", runtimes={"cpu": {"a": cpu}})


def refused(uid: str, saw_quota: int, *, code: str = EXCEEDED) -> PodRecord:
    attempt = Attempt(saw=5, saw_quota=saw_quota, reasons=((PLUGIN, code),))
    return PodRecord(uid, observation=first_observation(1), attempts=1, decisions=Decisions(attempt=attempt))


def test_pods_of_quotas_need_a_charge_before_the_ledger_has_read_or_written_any() -> None:
    view = QuotaView()
    view.observe("x/a", {"metadata": {"name": "a", "namespace": "q"}})
    assert view.needs_charge("ns", LABELED), "the ledger has still to declare what the cluster has"
    assert not view.needs_charge("ns", {})
    assert not view.needs_charge("ns", {QUOTA_NAME: "unknown"})
    append(view, declared("a"))
    view.lose("x/a")
    assert view.needs_charge("ns", LABELED), "the ledger has still to retire it"
    append(view, QuotaDeleted(quota="a"))
    assert not view.needs_charge("ns", LABELED)


def test_a_place_that_comes_free_lets_one_pod_through_in_order() -> None:
    view = view_of(declared("a"), runtime(2000), *(attached(f"p{n}") for n in range(6)), charged("p0"), charged("p1"))
    gate, seen = QuotaGate(view), 99
    waiting = {f"p{n}": refused(f"p{n}", seen) for n in range(2, 6)}
    for uid, pod_record in waiting.items():
        assert gate.place(uid, pod_record, 0) == (None, 0)
    assert gate.changed() == []
    view.seq = seen  # type: ignore[attr-defined]
    append(view, PodChargeReverted(pod_uid="p0", pod="p0", quota="a", request={"cpu": 1000}, reason="cycle-ended"))
    assert gate.changed() == ["p2"]
    assert gate.place("p2", waiting["p2"], 0) == (waiting["p2"], 6)
    assert gate.place("p3", waiting["p3"], 0) == (None, 0)
    append(view, charged("p2"))
    gate.place("p2", None, 0)
    assert gate.changed() == []
    append(view, runtime(4000))
    assert sorted(gate.changed()) == ["p3", "p4"]


@pytest.mark.parametrize("tightens", [charged("p3"), runtime(1000)])
def test_capacity_that_is_taken_by_others_admits_no_longer(tightens: Event) -> None:
    view = view_of(declared("a"), runtime(1000), *(attached(f"p{n}") for n in range(4)), charged("p0"))
    gate, waiting = QuotaGate(view), refused("p2", 99)
    gate.place("p2", waiting, 0)
    view.seq = 99  # type: ignore[attr-defined]
    append(view, runtime(2000))
    assert gate.changed() == ["p2"]
    append(view, tightens)
    assert gate.changed() == ["p2"]
    assert gate.place("p2", waiting, 0) == (None, 0), "as a gate that begins now has it"
    assert gate.changed() == []


def test_changes_that_free_nothing_let_no_pod_be_tried() -> None:
    view = view_of(declared("a"), declared("b"), runtime(1000), attached("p0"), attached("p1"), charged("p0"))
    gate, pod_record = QuotaGate(view), refused("p1", 99)
    gate.place("p1", pod_record, 0)
    view.seq = 99  # type: ignore[attr-defined]
    append(
        view, attached("p2", quota="b"), PodReleased(pod_uid="p2", pod="p2", quota="b", reason="deleted"), runtime(500)
    )
    assert gate.changed() == []
    append(view, PodReleased(pod_uid="p0", pod="p0", quota="a", reason="deleted"))
    assert gate.changed() == [], "half of it is gone: there is no room yet"
    append(view, runtime(1000))
    assert gate.changed() == ["p1"]


def test_a_pod_whose_ledger_did_not_answer_is_tried_again_after_its_backoff() -> None:
    pod_record = refused("p", 0, code=UNREACHABLE)
    assert QuotaGate(view_of()).place("p", pod_record, 0) == (pod_record, pod_record.saw + 1)


def planned(*outcomes: tuple[str, str, int], condition_code: str = "") -> CyclePlan:
    """A plan of (pod, node, unit) in which every pod has been refused once."""
    pod_class = PodClass(b"", pod("any"))
    decisions: list[PlacedPod | RefusedPod] = []
    for uid, node, unit in outcomes:
        pod_record = PodRecord(uid, uid, attempts=1, decisions=Decisions(condition_code=condition_code))
        pod_record.pod_class = PodClass(uid.encode(), pod(uid))
        if node:
            decisions.append(PlacedPod(pod_record, pod_record.pod_class, node, 0, 0, {}, unit))
        else:
            decisions.append(RefusedPod(pod_record, 0))
    profiles = {pod_class.scheduler: Profile(pod_class.scheduler, (), ())}
    return CyclePlan(7, tuple(decisions), (ClassEvaluated(nodes=3, feasible=2),), profiles)


def needs_charge(pod_class: PodClass) -> bool:
    return pod_class.key != b"p3"


def test_a_refused_pod_is_taken_back_and_whoever_found_no_node_behind_it_is_tried_again() -> None:
    plan = planned(("p1", "", 0), ("p2", "n1", 0), ("p3", "n2", 0), ("p4", "", 0))
    assert [[each.uid for each in group] for group in groups_to_charge(plan, needs_charge)] == [["p2"]]
    short = QuotaShort(quota="a", stage="quota", short={"cpu": 500}, message="Insufficient quotas")
    decided, *rest = (draft.event for draft in drafts_of(without_refused(plan, {"p2": short}, 40)))
    assert isinstance(decided, CycleDecided)
    assert [(outcome.pod_uid, outcome.node) for outcome in decided.pods] == [("p1", ""), ("p2", ""), ("p3", "n2")]
    assert decided.charged_at == 40
    [rejected] = decided.classes[decided.pods[1].class_index].rejected
    assert (rejected.plugin, rejected.code, rejected.detail) == (PLUGIN, EXCEEDED, "a, exceedDimensions: [cpu]")
    unschedulable = [event for event in rest if isinstance(event, PodUnschedulable) and event.pod_uid == "p2"]
    assert [(event.code, event.attempt) for event in unschedulable] == [(EXCEEDED, 2)]
    assert unschedulable[0].message == "0/3 nodes are available: Insufficient quotas."
    assert not [event for event in rest if getattr(event, "pod_uid", "") == "p4"]


def test_a_unit_is_one_group_and_is_taken_back_whole_members_that_need_no_charge_included() -> None:
    plan = planned(("p0", "n0", 0), ("p1", "n1", 1), ("p2", "n1", 1), ("p3", "n2", 1), ("p4", "n2", 2), ("p5", "n2", 2))
    groups = groups_to_charge(plan, needs_charge)
    assert [[each.uid for each in group] for group in groups] == [["p0"], ["p1", "p2"], ["p4", "p5"]]
    short = QuotaShort(quota="a", stage="quota", short={"cpu": 500})
    after = without_refused(plan, {"p1": short, "p2": short}, 40)
    assert [placed.pod.uid for placed in after.placed()] == ["p0", "p4", "p5"]
    refused = [each for each in after.decisions if isinstance(each, RefusedPod)]
    assert [each.pod.uid for each in refused] == ["p1", "p2", "p3"]
    assert {after.evaluations[each.class_index].rejected[0].code for each in refused} == {EXCEEDED}


@pytest.mark.parametrize("stage", ["quota", "nonPreemptible", "ancestor"])
def test_a_condition_that_a_pod_has_is_not_written_again(stage: str) -> None:
    short = QuotaShort(quota="a", stage=stage, short={"cpu": 1})
    [_, first] = drafts_of(without_refused(planned(("p1", "n1", 0)), {"p1": short}, 1))
    assert isinstance(first.event, PodUnschedulable)
    plan = planned(("p1", "n1", 0), condition_code=first.event.code)
    assert len(drafts_of(without_refused(plan, {"p1": short}, 1))) == 1


def test_a_restored_view_is_equal() -> None:
    chance = random.Random(5)
    view = view_of(declared("org"), declared("a", "org"), runtime(3000))
    for number in range(60):
        uid = f"p{chance.randrange(12)}"
        events = (
            attached(uid, chance.randrange(900)),
            charged(uid),
            PodReleased(pod_uid=uid, pod=uid, quota="a", reason="deleted"),
        )
        append(view, chance.choice(events) if number else events[0])
    other = QuotaView()
    other.restore(view.image())
    assert other.image() == view.image()
    entry = view.pods[min(view.pods)]
    for cpu in range(0, 4000, 500):
        taken = {"a": {"cpu": cpu}}
        assert other.has_room(entry, taken, {}) == view.has_room(entry, taken, {})
