"""The explanation of `koord why pod`, from a pod's own events."""

from typing import Any

import msgspec
import pytest

from services.scheduler.explain.changed_fields import changed_fields
from services.scheduler.explain.explain_pod import explain
from services.scheduler.explain.explanation_text import Explanation, render
from services.scheduler.framework.reasons import summary
from services.scheduler.plugins.registry import REGISTRY, text
from shared.events import RecordedEvent
from shared.events.cluster import MissingPermission, PodBound, PodDeleted, PodEvicted
from shared.events.intents import EvictionRequested
from shared.events.migration import MigrationEvictionDecided
from shared.events.quota import (
    PodAdmissionDecided,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
)
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube.pod import PodCondition
from tests.support.device_machines import CORE, RATIO, SHARED, gpu_node, gpu_pod
from tests.support.scheduling_world import World, metric, node, pod, thresholds, use


def history_of(world: World, uid: str) -> list[RecordedEvent]:
    """The events that have the pod's key, and all cycles."""
    records = [record for log in world.logs.values() for record in log]
    return [
        record
        for record in records
        if getattr(record.event, "pod_uid", "") == uid or isinstance(record.event, CycleDecided)
    ]


def hot_and_calm() -> World:
    world = World()
    use(world, thresholds(65, 95))
    world.add_node(node("hot", cpu="10"))
    world.report(metric("hot", cpu="9"))
    world.add_node(node("calm", cpu="10"))
    world.report(metric("calm", cpu="1"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    return world


def test_a_bound_pod_is_explained_by_the_nodes_it_avoided() -> None:
    world = hot_and_calm()
    world.answer(world.cycle()[1], "bound")
    explanation = explain(history_of(world, "p"))
    assert (explanation.pod, explanation.pod_uid, explanation.status, explanation.node) == ("d/p", "p", "bound", "calm")
    evaluation = explanation.evaluation
    assert evaluation is not None
    assert (evaluation.nodes, evaluation.feasible, evaluation.node) == (2, 1, "calm")
    (refusal,) = evaluation.rejected
    assert (refusal.plugin, refusal.detail, refusal.nodes) == ("LoadAwareScheduling", "cpu", 1)
    shown = render(explanation)
    assert "it is bound to calm" in shown
    assert "1  LoadAwareScheduling: node(s) cpu usage exceed threshold" in shown
    assert "-> calm:" in shown
    assert "NodeResourcesFit" in shown


def test_a_pod_that_no_node_takes_for_lack_of_shared_gpus_names_the_setting_that_counts_them() -> None:
    world = World()
    has_none = {**(gpu_node("n").status.allocatable or {}), SHARED: "0"}
    world.add_node(node("n", extra=has_none))
    world.add_pod(gpu_pod("p", {CORE: "50", RATIO: "50", SHARED: "1"}))
    world.read()
    world.cycle()
    explanation = explain(history_of(world, "p"))
    assert explanation.evaluation is not None
    remedies = [refusal.remedy for refusal in explanation.evaluation.rejected if refusal.detail == SHARED]
    assert len(remedies) == 1
    assert "KOORD_SLO_CONTROLLER_SHARED_GPUS" in remedies[0]
    assert remedies[0] in render(explanation)


def test_events_of_the_quota_ledger_about_a_pod_are_described() -> None:
    about: dict[str, Any] = {"pod_uid": "p", "pod": "d/p", "quota": "team"}
    events = (
        PodAttached(**about, request={"cpu": 1}),
        PodAdmissionDecided(**about, epoch=1, cycle=7, ok=False, stage="quota", shortfall={"memory": 2, "cpu": 1}),
        PodCharged(**about, request={"cpu": 1}),
        PodChargeReverted(**about, request={"cpu": 1}, reason="bind-refused"),
        PodMoved(**about, before="others", request={"cpu": 1}),
        PodResized(**about, before={"cpu": 1}, after={"cpu": 2}),
        PodReleased(**about, reason="deleted"),
    )
    records = [RecordedEvent("quota", seq, event, seq, None) for seq, event in enumerate(events, 1)]
    assert [step.text for step in explain(records).steps] == [
        "it belongs to quota team",
        "cycle 7 may not place it: quota team is short of cpu, memory",
        "quota team is charged for it",
        "quota team is no longer charged for it (bind-refused); it waits",
        "it belongs to quota team now, no longer to others",
        "quota team counts the amounts that it requests now",
        "quota team no longer counts it: deleted",
    ]


def test_the_decision_of_a_migration_is_a_sentence() -> None:
    moved = MigrationEvictionDecided(
        job="job-1", job_uid="j", pod="d/web", pod_uid="web", node="a", destination="b", controller="", method="Eviction",
        reason="hot",
    )  # fmt: skip
    [step] = explain([RecordedEvent("descheduling", 3, moved, 1)]).steps
    assert step.text == "PodMigrationJob job-1 moves it to b: Eviction from a: hot"


def test_steps_are_in_order_and_an_explanation_survives_json() -> None:
    world = hot_and_calm()
    world.wait(1)
    placed = world.cycle()[1]
    world.wait(1)
    world.answer(placed, "bound")
    explanation = explain(reversed(history_of(world, "p")))
    assert [step.type.split(".")[-2] for step in explanation.steps] == ["PodObserved", "PodPlaced", "PodBound"]
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation) == explanation


def test_clocks_that_differ_by_minutes_do_not_reorder_cause_and_effect() -> None:
    world = hot_and_calm()
    placed = world.cycle()[1]
    world.wait(-300)
    world.answer(placed, "bound")
    assert explain(history_of(world, "p")).status == "bound"


def test_an_unschedulable_pod_is_explained_by_what_refused_every_node() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    world.cycle()
    explanation = explain(history_of(world, "p"), language="zh")
    assert explanation.status == "unschedulable"
    assert explanation.evaluation is not None
    assert explanation.evaluation.rejected[0].text == "cpu 不足"
    assert "0/1 nodes are available" in explanation.summary


def test_the_newest_cycle_that_tried_the_pod_is_shown_though_its_outcome_was_the_same() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    world.cycle()
    world.wait(400)
    world.read()
    (tried, *_) = (each for each in world.cycle() if isinstance(each.event, CycleDecided))
    assert isinstance(tried.event, CycleDecided)
    assert [each.pod_uid for each in tried.event.pods] == ["p"]
    explanation = explain(history_of(world, "p"))
    assert explanation.evaluation is not None
    assert explanation.evaluation.event == f"scheduling/{tried.seq}"


def test_the_headline_is_of_the_newest_cycle_with_its_counts() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    world.cycle()
    world.add_node(node("m", cpu="1"))
    world.wait(400)
    world.read()
    world.cycle()
    assert explain(history_of(world, "p")).summary == (
        "cycle 2 found no node, as cycle 1 did before: 0/2 nodes are available: 2 Insufficient cpu."
    )


@pytest.mark.parametrize("is_outcome_first", [True, False])
def test_the_headline_of_a_running_pod_is_the_same_whichever_event_of_the_gateway_came_first(
    is_outcome_first: bool,
) -> None:
    world = hot_and_calm()
    [placed] = [each for each in world.cycle() if isinstance(each.event, PodPlaced)]
    if is_outcome_first:
        world.answer(placed, "bound")
    world.add_pod(pod("p", on="calm", phase="Running"))
    if not is_outcome_first:
        world.answer(placed, "bound")
    explanation = explain(history_of(world, "p"))
    assert (explanation.status, explanation.node, explanation.summary) == ("bound", "calm", "it is on calm, Running")


def test_a_deleted_pod_is_gone_although_its_binding_is_rejected_afterwards() -> None:
    world = hot_and_calm()
    [placed] = [each for each in world.cycle() if isinstance(each.event, PodPlaced)]
    world.drop_pod("p")
    world.answer(placed, "rejected")
    explanation = explain(history_of(world, "p"))
    assert (explanation.status, explanation.summary) == ("gone", "it was deleted")
    assert explanation.steps[-1].text == "the binding failed: no"


def test_a_pod_that_was_evicted_is_gone_for_the_reason_of_its_eviction() -> None:
    world = World()
    world.add_pod(pod("p", on="n", phase="Running"))
    observed = history_of(world, "p")
    requested = EvictionRequested(pod="d/p", pod_uid="p", reason="PodMigrationJob drain-1: drain of n")
    eviction = (requested, PodEvicted(pod="d/p", pod_uid="p"), PodDeleted(pod="d/p", pod_uid="p"))
    last = observed[-1]
    records = [RecordedEvent("cluster", last.seq + n, each, last.at_ns + n) for n, each in enumerate(eviction, start=1)]
    explanation = explain([*observed, *records])
    assert explanation.summary == "it was evicted: PodMigrationJob drain-1: drain of n, and is gone"


def test_a_pod_that_runs_is_not_refused_by_a_permission_that_its_eviction_lacks() -> None:
    world = World()
    world.add_pod(pod("p", on="n", phase="Running"))
    world.observe(MissingPermission(name="d/p", rule="create pods/eviction", pod_uid="p"))
    explanation = explain(history_of(world, "p"))
    assert (explanation.status, explanation.summary) == ("bound", "it is on n, Running")


def test_the_explanation_of_a_pod_counts_equal_pods_placed_before_it() -> None:
    world = World()
    for name in ("a", "b"):
        world.add_node(node(name))
        world.add_pod(pod(f"p-{name}"))
    world.read()
    world.cycle()
    evaluation = explain(history_of(world, "p-b")).evaluation
    assert evaluation is not None
    assert evaluation.equals_before == 1
    assert "evaluated before an equal pod of the same cycle" in render(explain(history_of(world, "p-b")))


def test_pods_that_were_never_tried_say_what_they_wait_for() -> None:
    world = World()
    world.add_pod(pod("gated", gates=("example/quota",)))
    world.add_pod(pod("foreign", scheduler="default-scheduler"))
    assert "example/quota" in explain(history_of(world, "gated")).summary
    assert explain(history_of(world, "gated")).status == "gated"
    assert "default-scheduler" in explain(history_of(world, "foreign")).summary


def test_every_outcome_has_a_status() -> None:
    for how, status in (
        ("rejected", "rejected"),
        ("failed", "rejected"),
        ("forbidden", "rejected"),
        ("suppressed", "suppressed"),
    ):
        world = hot_and_calm()
        world.answer(world.cycle()[1], how)
        assert explain(history_of(world, "p")).status == status


def test_of_two_pods_with_one_name_the_later_one_is_explained() -> None:
    world = World()
    world.add_pod(pod("old"))
    world.drop_pod("old")
    world.wait(1)
    world.observe(PodBound(pod="d/old", pod_uid="new", node="n"))
    records = [record for log in world.logs.values() for record in log]
    assert explain(records).pod_uid == "new"
    assert explain(records, "old").status == "gone"


def test_the_explanation_of_a_pod_without_events_is_empty() -> None:
    explanation = explain([])
    assert explanation.status == "unknown"
    assert "the log has no event about this pod" in render(explanation)


def test_every_reason_of_every_plugin_has_a_text_in_both_languages() -> None:
    for spec in REGISTRY.specs.values():
        assert spec.queueing_hints.keys() == spec.reasons.keys()
    for code, words in REGISTRY.texts.by_code.items():
        assert words.english != words.chinese
        assert text(code, "cpu") != code
        assert text(code, "cpu", "zh") != text(code, "cpu")


def test_a_code_of_a_newer_release_stands_for_itself() -> None:
    assert text("GangNotComplete", "g1") == "GangNotComplete (g1)"
    assert summary(3, {}) == "0/3 nodes are available."
    assert summary(3, {"cpu 不足": 2}, "zh") == "3 个节点中没有可用节点：2 个cpu 不足。"


def test_an_observation_that_changes_no_state_names_the_fields_that_changed_or_is_left_out() -> None:
    """The lines "observed: a kept field changed" named nothing."""
    world = World()
    world.add_node(node("small", cpu="1"))
    world.add_pod(pod("p", cpu="8"))
    world.read()
    world.cycle()
    world.wait(1)
    world.add_pod(pod("p", cpu="8"))  # observed again as it was, after a restart of the gateway
    world.add_pod(pod("p", cpu="8", labels={"app": "web"}))
    refused = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")
    world.add_pod(pod("p", cpu="4", labels={"app": "web"}, conditions=(refused,)))
    world.read()
    texts = [step.text for step in explain(history_of(world, "p")).steps]
    assert texts == [
        "it waits for scheduler koord-scheduler",
        "cycle 1 found no node: 0/1 nodes are available: 1 Insufficient cpu.",
        "observed: metadata.labels.app changed",
        "observed: spec.containers[c].resources.requests.cpu, status.conditions[PodScheduled] changed",
    ]


def test_many_changed_fields_are_counted() -> None:
    labels = {f"l{number}": "" for number in range(7)}
    assert changed_fields(pod("p", labels=labels), pod("p", labels=dict.fromkeys(labels, "x"))) == (
        "metadata.labels.l0, metadata.labels.l1, metadata.labels.l2, metadata.labels.l3 and 3 more"
    )
    assert not changed_fields(pod("p"), pod("p"))
    assert changed_fields(pod("p", gates=("a",)), pod("p")) == "spec.schedulingGates[a]"
