"""Queueing hints: the events that requeue a refused pod, the condition of a waiting pod, and its pending status."""

from collections.abc import Callable
from typing import Any

import pytest

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.why_pod_waits_now import pending_status, pending_status_of
from services.scheduler.plugins.registry import text
from services.scheduler.queue import queueing_hints
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events.log import WriterStarted
from shared.kube.instants import SECOND, instant_text
from shared.kube.node import Taint
from tests.support.scheduling_world import (
    START_NS,
    World,
    cycles_of,
    metric,
    node,
    placements,
    pod,
    report,
    thresholds,
    use,
)
from tests.support.scheduling_world import unschedulable as written

Event = Callable[[World], None]


def release(world: World) -> None:
    world.drop_pod("runs")


def relabel(world: World) -> None:
    world.add_node(node("n", **OTHERWISE, labels={"zone": "a"}))


def enlarge(world: World) -> None:
    world.add_node(node("n", **{**OTHERWISE, "cpu": "6"}))


def untaint(world: World) -> None:
    world.add_node(node("n", **{**OTHERWISE, "taints": ()}))


def uncordon(world: World) -> None:
    world.add_node(node("n", **{**OTHERWISE, "unschedulable": False}))


def measure(world: World) -> None:
    world.report(metric("n", cpu="10m", at_ns=world.now_ns))


def record_report(world: World) -> None:
    world.report_usage(report("n", cpu_milli=10, at_ns=world.now_ns))


def add_node(world: World) -> None:
    world.add_node(node("other", cpu="0"))


OTHERWISE: dict[str, Any] = {}
EVENTS = (release, relabel, enlarge, untaint, uncordon, measure, record_report, add_node)


@pytest.mark.parametrize(
    ("reason", "made", "requests", "wakes"),
    [
        ("InsufficientResource", {"cpu": "1"}, {"cpu": "1"}, (release, enlarge, add_node)),
        ("NodeUnschedulable", {"unschedulable": True}, {}, (uncordon, add_node)),
        ("UntoleratedTaint", {"taints": (Taint(key="k", effect="NoSchedule"),)}, {}, (untaint, add_node)),
        ("NodeAffinityMismatch", {}, {"selector": {"zone": "a"}}, (relabel, add_node)),
        ("HostPortTaken", {}, {"ports": (80,)}, (release, add_node)),
        ("UsageExceedsThreshold", {}, {}, (release, enlarge, measure, record_report, add_node)),
    ],
)
def test_a_refused_pod_is_woken_by_the_events_that_its_reason_names_and_by_no_other(
    reason: str,
    made: dict[str, Any],
    requests: dict[str, Any],
    wakes: tuple[Event, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the hints alone: with few classes, a pod is not even tried when an event of the right kind helps nothing."""
    monkeypatch.setattr(queueing_hints, "EXACT_CLASSES", -1)
    for event in EVENTS:
        world = World()
        use(world, thresholds(50 if reason == "UsageExceedsThreshold" else 0, 0))
        OTHERWISE.clear()
        OTHERWISE.update(made)
        world.add_node(node("n", **made))
        if reason == "UsageExceedsThreshold":
            world.report(metric("n", cpu="3900m"))
        world.add_pod(pod("runs", on="n", phase="Running", ports=(80,)))
        world.add_pod(pod("p", **requests))
        world.read()
        assert written(world.cycles())["p"].code == reason
        world.wait(20)
        event(world)
        world.read()
        tried = [outcome.pod_uid for cycle in cycles_of(world.cycles()) for outcome in cycle.pods]
        assert tried == (["p"] if event in wakes else []), event.__name__


@pytest.mark.parametrize("exact_classes", [64, -1], ids=["judged anew", "by the hints alone"])
def test_a_report_wakes_the_pods_that_load_keeps_waiting_whichever_shard_recorded_it(
    exact_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing_hints, "EXACT_CLASSES", exact_classes)
    world = World()
    use(world, thresholds(50, 0))
    for number, name in enumerate(("a", "b")):
        world.add_node(node(name))
        world.report_usage(report(name, cpu_milli=3900, at_ns=START_NS), f"metrics-{number}")
    world.add_pod(pod("p"))
    world.add_pod(pod("large", cpu="100"))
    world.read()
    refused = written(world.cycles())
    assert {uid: condition.code for uid, condition in refused.items()} == {
        "p": "UsageExceedsThreshold",
        "large": "InsufficientResource",
    }
    world.wait(20)
    assert world.cycles() == [], "nothing has changed"
    world.report_usage(report("b", cpu_milli=100, at_ns=world.now_ns), "metrics-1")
    world.read()
    restored = SchedulerState()
    restored.restore(world.view.encode())
    again = CycleInputs(restored, config_of(restored).profiles)
    assert decide(again, world.now_ns, 256) == decide(world.indexed(), world.now_ns, 256)
    events = world.cycles()
    assert placements(events) == {"p": "b"}
    assert [outcome.pod_uid for cycle in cycles_of(events) for outcome in cycle.pods] == ["p"]


def test_a_report_that_ends_no_reason_causes_no_cycle() -> None:
    world = World()
    use(world, thresholds(50, 0))
    world.add_node(node("n"))
    world.report_usage(report("n", cpu_milli=3900, at_ns=START_NS))
    world.add_pod(pod("p"))
    world.read()
    world.cycles()
    for _ in range(3):
        world.wait(60)
        world.report_usage(report("n", cpu_milli=3800, at_ns=world.now_ns))
        world.read()
        assert world.cycles() == []


def test_a_status_is_written_when_the_code_changes_and_never_because_a_count_did() -> None:
    world = World()
    world.add_pod(pod("p", cpu="8"))
    codes: list[str] = []
    for step in range(6):
        if step < 3:
            world.add_node(node(f"n{step}"))  # more and more nodes are too small
        else:
            world.add_node(
                node(f"n{step - 3}", cpu="16", unschedulable=True)
            )  # and one after the other is large, and closed
        world.read()
        codes += [event.code for event in written(world.cycles()).values()]
        world.wait(400)
    assert codes == ["InsufficientResource", "NodeUnschedulable"]
    assert world.view.pods["p"].attempts == 6


def standing(world: World, uid: str) -> tuple[str, str]:
    cache = world.indexed()
    cache.settle()
    reason = pending_status_of(cache, world.view.pods[uid], world.now_ns)
    assert reason is not None
    assert text(reason.code, reason.detail) != text(reason.code, reason.detail, "zh")
    return reason.code, reason.detail


def test_a_pod_that_is_not_attempted_has_a_reason_at_each_stage() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("gated", gates=("example/hold", "example/too")))
    world.add_pod(pod("foreign", scheduler="default-scheduler"))
    world.add_pod(pod("going", deleting=True))
    world.add_pod(pod("p", cpu="2"))
    world.add_pod(pod("q"))
    world.read()
    assert standing(world, "gated") == ("SchedulingGated", "example/hold, example/too")
    assert standing(world, "foreign") == ("OtherScheduler", "default-scheduler")
    assert standing(world, "going") == ("Deleting", "")
    assert standing(world, "p") == ("InQueue", "")
    placed = next(record for record in world.cycle() if getattr(record.event, "node", ""))
    assert standing(world, "p") == ("BackingOff", instant_text(START_NS + SECOND))
    assert standing(world, "q") == ("BindingUnderWay", "n")
    world.answer(placed, "suppressed")
    world.read()
    assert standing(world, "q")[0] == "BindingSuppressed"
    world.observe(WriterStarted(epoch=9, release="x"))
    world.read()
    world.wait(2)
    assert standing(world, "q") == ("InQueue", "")
    assert standing(world, "p") == ("AwaitsChange", instant_text(START_NS + 300 * SECOND))
    world.add_node(node("m"))
    world.read()
    assert placements(world.cycles()).keys() == {"p", "q"}


def test_a_pods_status_has_a_text_in_both_languages() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    world.cycles()
    found = pending_status(world.indexed(), "d/p", world.now_ns)
    assert found is not None
    assert (found["code"], found["attempts"]) == ("BackingOff", 1)
    assert found["refusedBy"] == [{"plugin": "NodeResourcesFit", "code": "InsufficientResource"}]
    assert found["text"]["zh"].startswith("上次调度失败")
    assert pending_status(world.indexed(), "d/nobody", world.now_ns) is None
