"""The scheduling queue: the pods to try, their times and their order."""

from typing import Any

import pytest

from services.scheduler.queue.retries import backoff_ns
from shared.domain.priority import SUB_PRIORITY
from shared.events.log import WriterStarted
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from tests.support.scheduling_world import (
    START_NS,
    World,
    cycles_of,
    metric,
    node,
    placements,
    pod,
    thresholds,
    unschedulable,
    use,
)


def tried(world: World) -> list[str]:
    """The pods that the next cycles take, in order."""
    return [outcome.pod_uid for cycle in cycles_of(world.cycles()) for outcome in cycle.pods]


def full_node() -> World:
    """One node with no room, and a pod that was refused by it."""
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("runs", cpu="1", on="n", phase="Running"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    assert unschedulable(world.cycle()).keys() == {"p"}
    return world


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (20, 10)])
def test_the_wait_doubles_from_one_second_to_ten(attempts: int, seconds: int) -> None:  # spec/scheduler-core.md 1.3
    assert backoff_ns(attempts) == seconds * SECOND


def test_higher_priority_goes_first_and_equals_go_in_order_of_arrival() -> None:  # spec/scheduler-core.md 1.3
    world = World()
    world.add_node(node("n"))
    world.add_pod(pod("batch", priority=5500))
    world.add_pod(pod("first", priority=9500))
    world.add_pod(pod("second", priority=9500))
    world.add_pod(pod("none"))
    world.read()
    assert tried(world) == ["first", "second", "batch", "none"]


def banded(name: str, sub_priority: str | None, **more: Any) -> Pod:
    labels = {} if sub_priority is None else {SUB_PRIORITY: sub_priority}
    return pod(name, priority=5500, labels=labels, **more)


def test_of_equal_priority_the_higher_sub_priority_goes_first() -> None:
    """The queue was in order of arrival alone, although the label's documentation promised otherwise."""
    world = World()
    world.add_node(node("n"))
    for one in (banded("none", None), banded("low", "5300"), banded("bad", "high"), banded("high", "0x170C")):
        world.add_pod(one)
    world.add_pod(pod("prod", priority=9000))
    world.add_pod(banded("below", "-1"))
    world.read()
    assert tried(world) == ["prod", "high", "low", "none", "bad", "below"]


def test_sub_priorities_order_refused_pods_too() -> None:
    world = full_node()
    world.add_pod(banded("low", "5300", cpu="1"))
    world.add_pod(banded("high", "5900", cpu="1"))
    world.read()
    world.cycle()
    world.drop_pod("runs")
    world.read()
    world.wait(20)
    assert list(placements(world.cycle())) == ["high"]


def test_sub_priorities_can_be_switched_off() -> None:
    world = World(by_sub_priority=False)
    world.add_node(node("n"))
    world.add_pod(banded("low", "5300"))
    world.add_pod(banded("high", "5900"))
    world.read()
    assert tried(world) == ["low", "high"]


@pytest.mark.parametrize(
    "other",
    [
        pod("q", gates=("quota.example/hold",)),
        pod("q", deleting=True),
        pod("q", scheduler="default-scheduler"),
        pod("q", labels={"scheduling.koordinator.sh/scheduler-name": "someone-else"}),
        pod("q", on="n", phase="Running"),
        pod("q", phase="Failed"),
    ],
    ids=["gated", "deleting", "other scheduler", "other scheduler by label", "has a node", "ended"],
)
def test_only_pods_that_wait_for_one_of_our_profiles_are_tried(other: object) -> None:
    world = World()
    world.add_node(node("n"))
    world.add_pod(other)  # type: ignore[arg-type]  # parametrize knows no types
    world.add_pod(pod("p"))
    world.read()
    assert tried(world) == ["p"]


def test_the_scheduler_label_outranks_the_spec() -> None:
    world = World()
    world.add_node(node("n"))
    label = {"scheduling.koordinator.sh/scheduler-name": "koord-scheduler"}
    world.add_pod(pod("p", scheduler="default-scheduler", labels=label))
    world.read()
    assert tried(world) == ["p"]


def test_a_pod_is_tried_once_its_gates_are_removed() -> None:
    world = World()
    world.add_node(node("n"))
    world.add_pod(pod("p", gates=("a",)))
    world.read()
    assert tried(world) == []
    world.add_pod(pod("p"))
    world.read()
    assert tried(world) == ["p"]


def test_a_refused_pod_waits_for_its_backoff_even_if_room_is_freed_at_once() -> None:
    world = full_node()
    world.drop_pod("runs")
    world.read()
    world.wait(0.999)
    assert tried(world) == []
    world.wait(0.001)
    assert tried(world) == ["p"]


def test_an_event_that_cannot_end_the_reason_requeues_no_pod() -> None:
    world = full_node()
    world.wait(60)
    world.add_node(node("n", cpu="1", labels={"new": "label"}))
    world.report(metric("n", cpu="0"))
    world.read()
    assert tried(world) == []


def test_a_change_that_came_while_the_cycle_was_decided_wakes_the_pod() -> None:
    """The cycle saw the cluster as it was; what was appended meanwhile is later than what it saw."""
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("runs", cpu="1", on="n", phase="Running"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    world.drop_pod("runs")  # in the log, not yet read
    world.cycle()
    world.read()
    world.wait(1)
    assert tried(world) == ["p"]


def test_a_pod_that_nothing_wakes_is_tried_again_after_five_minutes() -> None:
    world = full_node()
    world.wait(299.9)
    assert tried(world) == []
    world.wait(0.1)
    assert tried(world) == ["p"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_delays_a_pod_by_no_more_than_the_longest_backoff(*, restarts: bool) -> None:
    world = full_node()
    world.drop_pod("runs")
    world.read()
    world.wait(-600)
    if restarts:
        world.cache = None
    assert tried(world) == []
    world.wait(10)
    assert tried(world) == ["p"]


def test_a_pod_that_requests_less_is_tried_after_its_backoff() -> None:
    world = full_node()
    world.wait(5)
    world.add_node(node("n", cpu="1500m"))
    world.add_pod(pod("p", cpu="500m"))
    world.read()
    assert tried(world) == ["p"]


def test_another_configuration_tries_what_the_last_one_refused() -> None:
    world = World()
    use(world, thresholds(50, 0))
    world.add_node(node("n", cpu="10"))
    world.report(metric("n", cpu="6"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    assert placements(world.cycles()) == {}
    world.wait(5)
    assert tried(world) == []
    use(world, thresholds(90, 0))
    world.cache = None  # the service builds another index with another configuration
    assert placements(world.cycles()) == {"p": "n"}


def test_a_refused_binding_is_tried_again_after_a_doubling_wait() -> None:
    world = World()
    world.add_node(node("n"))
    world.add_pod(pod("p"))
    world.read()
    for seconds in (1, 2, 4):
        placed = world.cycle()[1]
        world.answer(placed, "rejected")
        world.read()
        world.wait(seconds - 0.001)
        assert tried(world) == []
        world.wait(0.001)
    assert tried(world) == ["p"]


def test_a_suppressed_pod_is_tried_again_only_by_a_gateway_that_started_later() -> None:
    world = World()
    world.add_node(node("n"))
    world.add_pod(pod("p"))
    world.read()
    world.answer(world.cycle()[1], "suppressed")
    world.read()
    world.wait(1000)
    assert tried(world) == []
    world.observe(WriterStarted(epoch=9, release="x"))
    world.read()
    assert tried(world) == ["p"]


def test_a_cycle_takes_no_more_than_its_batch() -> None:
    world = World()
    world.add_node(node("n", cpu="64", memory="256Gi"))
    for number in range(10):
        world.add_pod(pod(f"p{number}", cpu="1"))
    world.read()
    sizes = [len(cycle.pods) for cycle in cycles_of(world.cycles(batch=4))]
    assert sizes == [4, 4, 2]


def test_the_queue_has_the_time_at_which_time_alone_lets_a_pod_be_tried() -> None:
    world = full_node()
    world.indexed().settle()
    assert world.indexed().queue.next_at_ns() == START_NS + SECOND
    world.wait(1)
    assert tried(world) == []
    assert world.indexed().queue.next_at_ns() == START_NS + 300 * SECOND
