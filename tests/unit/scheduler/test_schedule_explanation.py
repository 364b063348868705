"""ScheduleExplanation: the answer is the object's status, written again when it changes, and each minute."""

from typing import Any

import pytest

from services.scheduler.explain.answer_schedule_explanations import explanation_drafts
from services.scheduler.state.answered_schedule_explanations import EXPLANATIONS
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.instants import instant_text
from tests.support.reservations import available, reservation
from tests.support.scheduling_world import World, fold, node, pod


def submit(world: World, spec: dict[str, Any], name: str = "q") -> None:
    metadata = {"name": name, "namespace": "d", "uid": f"uid-{name}", "creationTimestamp": instant_text(world.now_ns)}
    question = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "metadata": metadata, "spec": spec}
    world.observe(ObjectObserved(resource=EXPLANATIONS, name=f"d/{name}", uid=f"uid-{name}", object=question))
    world.read()


def answer(world: World) -> dict[str, Any] | None:
    """Returns the status that is written now, folded; None for none."""
    cache = world.indexed()
    cache.settle()
    drafts = explanation_drafts(cache, world.now_ns)
    world.append_drafts(drafts)
    events = [draft.event for draft in drafts]
    if not events:
        return None
    (event,) = events
    assert isinstance(event, FieldsDesired)
    status: dict[str, Any] = event.patch["status"]
    return status


def template(cpu: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container]},
    }


@pytest.fixture
def world() -> World:
    world = World()
    world.add_node(node("small", cpu="2"))
    world.add_node(node("large", cpu="8"))
    return world


def test_the_answer_for_a_pending_pod_names_the_nodes_that_reject_it_and_why(world: World) -> None:
    world.add_pod(pod("big", cpu="20"))
    submit(world, {"questionObjectKey": "d/big"})
    status = answer(world)
    assert status is not None
    assert status["schedulable"] is False
    assert status["failedMessage"] == "0/2 nodes are available: 2 Insufficient cpu."
    (detail,) = status["detailedExplanation"][0]["scheduleExplanation"]["nodeFailedDetails"]
    assert detail["failedPlugin"] == "NodeResourcesFit"
    assert detail["failedNodes"] == ["large", "small"]
    assert detail["preemptMightHelp"] is False, "they are too small even when empty"


def test_a_pending_pod_that_a_reservation_names_is_answered_with_its_node(world: World) -> None:
    owners = [{"object": {"namespace": "d", "name": "mover"}}]
    available(world, reservation("web", "8", owners=owners), "large", allocatable={"cpu": "8"})
    world.add_pod(pod("mover", cpu="8"))
    submit(world, {"questionObjectKey": "d/mover"})
    status = answer(world)
    assert status is not None
    (result,) = status["detailedExplanation"][0]["scheduleExplanation"]["feasibleSchedulingResult"]
    assert (result["name"], result["nodeName"]) == ("mover", "large")


def test_a_pod_that_runs_is_answered_with_its_node(world: World) -> None:
    world.add_pod(pod("web", on="small"))
    submit(world, {"questionObjectKey": "d/web"})
    status = answer(world)
    assert status is not None
    (result,) = status["detailedExplanation"][0]["scheduleExplanation"]["feasibleSchedulingResult"]
    assert (status["schedulable"], result["nodeName"]) == (True, "small")


def test_a_template_is_placed_in_thought(world: World) -> None:
    submit(world, {"questionObjectTemplate": template("4")})
    status = answer(world)
    assert status is not None
    (result,) = status["detailedExplanation"][0]["scheduleExplanation"]["feasibleSchedulingResult"]
    assert (result["name"], result["nodeName"]) == ("q", "large")
    assert not world.view.pods, "nothing was placed"


def test_an_answer_is_written_again_after_a_minute_or_when_it_changes(world: World) -> None:
    submit(world, {"questionObjectTemplate": template("4")})
    assert answer(world)
    world.wait(2)
    assert answer(world) is None
    world.drop_node("large")
    world.read()
    changed = answer(world)
    assert changed is not None
    assert changed["schedulable"] is False
    world.wait(61)
    assert answer(world) == {**changed, "lastUpdateTime": instant_text(world.now_ns)}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "give spec.questionObjectKey"),
        ({"questionObjectKey": "d/none"}, "there is no pod d/none"),
        ({"questionObjectTemplate": {"spec": {"containers": "many"}}}, "spec.questionObjectTemplate"),
        ({"questionObjectTemplate": template("lots")}, "lots"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_with_what_is_wrong(
    world: World, spec: dict[str, Any], message: str
) -> None:
    submit(world, spec)
    status = answer(world)
    assert status is not None
    assert message in status["failedMessage"]


def test_a_question_is_removed_when_its_time_is_over_and_another_one_of_its_name_is_another_question(
    world: World,
) -> None:
    submit(world, {"questionObjectTemplate": template("1"), "ttl": "1m"})
    assert answer(world)
    world.wait(90)
    (draft,) = explanation_drafts(world.indexed(), world.now_ns)
    assert draft.event == ObjectDesired(resource=EXPLANATIONS, name="d/q", body=None)
    world.observe(ObjectDeleted(resource=EXPLANATIONS, name="d/q", uid="uid-q"))
    world.read()
    assert explanation_drafts(world.indexed(), world.now_ns) == ()


def test_objects_and_answers_survive_a_restart(world: World) -> None:
    submit(world, {"questionObjectTemplate": template("1")})
    assert answer(world)
    again = type(world.view)()
    again.restore(world.view.encode())
    assert again.encode() == world.view.encode() == fold([*world.logs["cluster"], *world.logs["scheduling"]]).encode()
    assert again.explanation_answers == world.view.explanation_answers
