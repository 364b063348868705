"""The fold: a function of the positions alone, whatever the order in which the contexts arrive."""

from collections.abc import Sequence
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause
from shared.events.log import WriterStarted
from shared.events.scheduling import PodPlaced
from shared.kube.node import PodUsage, ResourceMap
from shared.kube.pod import PodCondition
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, fold, metric, node, placements, pod
from tests.unit.scheduler.interleavings import assert_one_state, loads, merged, requested, totals

OUTCOMES = ("bound", "rejected", "failed", "suppressed", "forbidden")


def small_world() -> World:
    world = World()
    world.add_node(node("a"))
    world.add_node(node("b"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    return world


def test_a_placement_that_is_refused_and_made_again_counts_once() -> None:
    world = small_world()
    first = world.place("p", on="a")
    world.answer(first, "rejected")
    world.read()
    second = world.place("p", on="b")
    world.answer(second, "bound")
    world.add_pod(pod("p", cpu="1", on="b", phase="Running"))
    view = assert_one_state(world)
    assert requested(view)["b"][0] == 1
    assert "a" not in requested(view) or requested(view)["a"][0] == 0


def test_a_late_refusal_of_an_earlier_placement_does_not_end_the_newer_one() -> None:
    world = small_world()
    first = world.place("p", on="a")
    second = world.place("p", on="b")
    world.answer(first, "rejected")
    assert second.seq > first.seq
    assert requested(assert_one_state(world))["b"][0] == 1


def test_a_pod_that_was_deleted_before_its_placement_is_read_holds_nothing() -> None:
    world = small_world()
    world.place("p", on="a")
    world.drop_pod("p")
    view = assert_one_state(world)
    assert "p" not in view.pods
    assert requested(view)["a"][0] == 0


def test_a_pod_that_returns_under_its_old_uid_has_no_part_in_what_was_decided_before() -> None:
    world = small_world()
    world.place("p", on="a")
    world.drop_pod("p")
    world.add_pod(pod("p", cpu="1"))
    view = assert_one_state(world)
    assert view.pods["p"].assignment() is None


def test_a_suppressed_placement_frees_its_capacity_and_is_not_tried_until_the_gateway_starts_anew() -> None:
    world = small_world()
    world.answer(world.place("p", on="a"), "suppressed")
    view = assert_one_state(world)
    assert view.pods["p"].assignment() is None
    assert not view.pods["p"].waiting(view.gateway_since)
    world.observe(WriterStarted(epoch=2, release="x"))
    view = assert_one_state(world)
    assert view.pods["p"].waiting(view.gateway_since)


def test_a_missing_permission_frees_the_room() -> None:
    world = small_world()
    world.answer(world.place("p", on="a"), "forbidden")
    assert assert_one_state(world).pods["p"].assignment() is None


def test_where_a_pod_is_observed_outranks_where_it_was_placed() -> None:
    world = small_world()
    world.place("p", on="a")
    world.add_pod(pod("p", cpu="1", on="b", phase="Running"))
    assert requested(assert_one_state(world))["b"][0] == 1


def test_a_pod_that_has_ended_holds_nothing() -> None:
    world = small_world()
    world.answer(world.place("p", on="a"), "bound")
    world.add_pod(pod("p", cpu="1", on="a", phase="Running"))
    world.add_pod(pod("p", cpu="1", on="a", phase="Succeeded"))
    assert requested(assert_one_state(world))["a"][0] == 0


def test_held_capacity_counts_as_a_placement_until_it_is_released() -> None:
    world = small_world()
    world.hold("p", on="a", unit="d/gang")
    view = assert_one_state(world)
    held = view.pods["p"]
    assert requested(view)["a"][0] == 1
    assert not held.waiting(view.gateway_since)
    assert held.hold is not None
    assert (held.hold.waits_for, held.hold.unit) == ("unit", "d/gang")
    world.release("p", of="a")
    view = assert_one_state(world)
    assert requested(view)["a"][0] == 0
    assert view.pods["p"].waiting(view.gateway_since)
    assert view.pods["p"].hold is None


def test_a_hold_that_became_a_binding_is_not_released_by_an_older_wish() -> None:
    world = small_world()
    world.hold("p", on="a")
    world.place("p", on="a")
    assert assert_one_state(world).pods["p"].hold is None
    world.release("p", of="a")
    assert requested(assert_one_state(world))["a"][0] == 1


def test_a_refused_binding_behind_a_hold_frees_the_capacity() -> None:
    world = small_world()
    world.hold("p", on="a")
    world.answer(world.place("p", on="a"), "rejected")
    assert requested(assert_one_state(world))["a"][0] == 0


def test_a_release_lets_a_refused_pod_be_tried_again_once() -> None:
    world = World()
    world.add_node(node("a", cpu="1"))
    for name in ("p", "q"):
        world.add_pod(pod(name, cpu="1"))
    world.read()
    world.hold("p", on="a")
    assert not placements(world.cycle())
    world.wait(2)
    assert not world.cycle(), "nothing has happened"
    world.release("p", of="a")
    world.drop_pod("p")
    assert placements(world.cycle()) or placements(world.cycle())


def test_a_pod_counts_since_its_scheduled_condition_or_since_it_was_first_seen_on_its_node() -> None:
    world = small_world()
    world.add_pod(pod("p", on="a", phase="Running"))
    world.wait(5)
    world.add_pod(pod("p", on="a", phase="Running"))
    held = assert_one_state(world).pods["p"].assignment()
    assert held is not None
    assert held.assigned_ns == world.now_ns - 5 * 10**9
    condition = PodCondition(type="PodScheduled", status="True", last_transition_time="2026-05-01T20:06:42Z")
    world.add_pod(pod("p", on="a", phase="Running", conditions=(condition,)))
    held = assert_one_state(world).pods["p"].assignment()
    assert held is not None
    assert held.assigned_ns == 1_777_666_002 * 10**9


STEPS = (
    "node", "drop node", "pod", "pod", "pod", "update", "drop pod", "end", "answer", "answer", "metric", "read", "read",
    "cycle", "cycle", "wait",
)  # fmt: skip

USED = ResourceMap(resources={"cpu": "70m", "memory": "96Mi"})

operations = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=40,
)


def play(steps: Sequence[tuple[str, int, int]]) -> World:
    """A history: whatever is impossible at its turn is passed over."""
    world = World()
    alive: dict[str, str] = {}  # pod -> node
    serial = 0
    for what, i, j in steps:
        match what:
            case "node":
                world.add_node(
                    node(f"n{i}", cpu=str(1 + j), labels={"zone": f"z{j % 2}"}, extra={"x/y": "3"} if j == 5 else None)
                )
            case "drop node":
                world.drop_node(f"n{i}")
            case "pod":
                serial += 1
                alive[f"p{serial}"] = ""
                selector = {"zone": "z0"} if j == 1 else None
                extra = {"x/y": "1"} if j == 2 else None
                world.add_pod(pod(f"p{serial}", cpu=f"{300 * (1 + i)}m", priority=j, selector=selector, extra=extra))
            case "update" | "end" if alive:
                name = sorted(alive)[i % len(alive)]
                phase = "Succeeded" if what == "end" else "Running"
                world.add_pod(pod(name, cpu=f"{300 * (1 + j)}m", on=alive[name], phase=phase))
            case "drop pod" if alive:
                name = sorted(alive)[i % len(alive)]
                del alive[name]
                world.drop_pod(name)
            case "answer":
                placed = [(r, r.event) for r in world.logs["scheduling"] if isinstance(r.event, PodPlaced)]
                answered = {record.cause for record in world.logs["cluster"]}
                open_ = [(r, e) for r, e in placed if Cause("scheduling", r.seq) not in answered and e.pod_uid in alive]
                if open_:
                    record, event = open_[i % len(open_)]
                    how = OUTCOMES[j] if j < 5 else "bound"
                    world.answer(record, how)
                    if how == "bound":
                        alive[event.pod_uid] = event.node
                        world.add_pod(pod(event.pod_uid, on=event.node, phase="Running"))
            case "metric":
                usages = [
                    PodUsage(name=name, namespace="d", priority=("koord-prod", "koord-batch")[j % 2], pod_usage=USED)
                    for name, where in sorted(alive.items())
                    if where == f"n{i}"
                ]
                world.report(metric(f"n{i}", cpu=f"{500 * j}m", at_ns=world.now_ns, pods=usages[: 1 + j]))
            case "read":
                at = world.view.positions.get("cluster", 0)
                world.read(min(at + 1 + 4 * i, len(world.logs["cluster"])))
            case "cycle":
                world.cycle(batch=1 + i)
            case "wait":
                world.wait(10.0**i / 100)
    return world


@settings(max_examples=examples(150), deadline=None)
@given(operations, st.randoms(use_true_random=False))
def test_any_interleaving_of_the_same_logs_ends_in_the_same_bytes(
    steps: list[tuple[str, int, int]], random: Random
) -> None:
    world = play(steps)
    world.read()
    expected = world.view.encode()
    for _ in range(4):
        assert fold(merged(world.logs, random)).encode() == expected


@settings(max_examples=examples(150), deadline=None)
@given(operations)
def test_an_index_that_followed_counts_and_decides_as_one_that_is_built_anew(steps: list[tuple[str, int, int]]) -> None:
    world = play([("node", 0, 3), *steps])
    world.read()
    followed = world.indexed()
    mine = {name: total for name, total in totals(followed).items() if total[0]}
    decided = decide(followed, world.now_ns, 8)
    assert decide(followed, world.now_ns, 8) == decided, "deciding changes nothing"
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()
    anew = CycleInputs(restored, config_of(restored).profiles)
    assert {name: total for name, total in totals(anew).items() if total[0]} == mine
    assert loads(anew) == loads(followed)
    assert decide(anew, world.now_ns, 8) == decided


def test_ten_thousand_equal_pods_are_one_class() -> None:
    world = World()
    for number in range(1000):
        world.add_pod(pod(f"p{number}"))
    world.read()
    world.view.read()
    assert len(world.view.pod_classes) == 1
    for number in range(1000):
        world.drop_pod(f"p{number}")
    world.read()
    assert not world.view.pod_classes


def test_every_one_of_many_pods_is_read_again_after_a_change_however_many_come_between_two_reads() -> None:
    world = World()
    names = [f"p{number}" for number in range(5_000)]
    for name in names:
        world.add_pod(pod(name, gates=("quota",)))
    world.read()
    for name in names:
        world.add_pod(pod(name))
    world.read()
    world.view.read()
    assert [name for name in names if not world.view.pods[name].waiting(0)] == []
    assert len(world.view.pod_classes) == 1


def test_a_freed_row_is_given_to_the_next_node() -> None:
    world = World()
    for number in range(300):
        world.add_node(node(f"n{number}"))
        world.read()
        world.indexed().settle()
        world.drop_node(f"n{number}")
        world.read()
        world.indexed().settle()
    table = world.indexed().table
    assert table.size <= 2
    assert not np.any(table.alive)
