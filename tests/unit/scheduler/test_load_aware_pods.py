"""Pods as the load-aware account sees them through the fold: which count, and by which of their observations."""

import pytest

from services.scheduler.extender_server.debug_views import plugin_views
from services.scheduler.state.scheduler_state import SchedulerState
from shared.kube.pod import Pod, PodCondition
from tests.support.scheduling_world import World, cycles_of, metric, node, placements, pod

CLASS = "koordinator.sh/priority-class"
RESERVE = {"scheduling.koordinator.sh/reserve-pod": "true"}
PROD_CPU, BATCH_CPU = 850, 250  # 85 % of a core; what a pod counts that requests no batch-cpu
BATCH = {CLASS: "koord-batch"}


def world_with(*pods: Pod) -> World:
    world = World()
    world.add_node(node("n"))
    world.report(metric("n", "1"))
    for each in pods:
        world.add_pod(each)
    return world


def running(labels: dict[str, str] | None = None, *, ready: bool = False, cpu: str = "1") -> Pod:
    return pod("p", cpu, on="n", phase="Running", labels=labels, conditions=(PodCondition("Ready", str(ready)),))


def estimated_cpu(world: World) -> int:
    world.read()
    view = plugin_views(world.indexed())["LoadAwareScheduling/node"]("n")
    assert view is not None
    cpu: int = view["nodeEstimated"].get("cpu", 0)
    return cpu


@pytest.mark.parametrize("read_between", [True, False])
@pytest.mark.parametrize(
    ("after", "cpu"),
    [
        pytest.param([running(BATCH)], PROD_CPU, id="labels alone"),
        pytest.param([running(BATCH), running(BATCH)], PROD_CPU, id="labels, then nothing"),
        pytest.param([running(BATCH), running(BATCH, ready=True)], BATCH_CPU, id="labels, then a condition"),
        pytest.param([running(BATCH, ready=True)], BATCH_CPU, id="labels with a condition"),
        pytest.param([running(BATCH), running({CLASS: "koord-prod"})], PROD_CPU, id="labels there and back"),
        pytest.param([running(BATCH), running(BATCH, cpu="2")], BATCH_CPU, id="labels, then the spec"),
        pytest.param([running(BATCH, ready=True), running(ready=True)], BATCH_CPU, id="both, then labels back"),
    ],
)
def test_labels_that_change_alone_leave_the_estimate_of_a_running_pod(
    after: list[Pod], cpu: int, *, read_between: bool
) -> None:
    world = world_with(running())
    for each in after:
        if read_between:
            world.read()
            world.view.read()
        world.add_pod(each)
    assert estimated_cpu(world) == cpu
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()


def test_a_pod_that_left_its_node_is_estimated_by_its_newest_class() -> None:
    world = world_with(running(), running(BATCH))
    assert estimated_cpu(world) == PROD_CPU
    world.drop_pod("p")
    assert estimated_cpu(world) == 0
    assert not world.view.pod_classes
    world.add_pod(running(BATCH))
    assert estimated_cpu(world) == BATCH_CPU


def test_a_pod_that_stands_for_a_reservation_uses_nothing_where_it_runs() -> None:
    world = world_with(pod("stand-in", "1", on="n", phase="Running", annotations=RESERVE), running())
    assert estimated_cpu(world) == PROD_CPU


def test_a_pod_that_stands_for_a_reservation_uses_nothing_once_it_is_placed() -> None:
    """A cycle scores the pod behind it as if the first were not there, and so does the record afterwards."""
    alone, behind = world_with(), world_with(pod("a", "1", priority=9000, annotations=RESERVE))
    loads = []
    for world in (alone, behind):
        world.add_pod(pod("b", "1"))
        world.read()
        decided = world.cycle()
        assert placements(decided)["b"] == "n"
        best = cycles_of(decided)[0].classes[-1].best[0]
        loads.append(best.plugin_scores["LoadAwareScheduling"])
        assert estimated_cpu(world) == PROD_CPU
    assert loads[0] == loads[1]


def test_many_equal_stand_ins_of_a_cycle_use_nothing_either() -> None:
    world = world_with()
    for number in range(40):
        world.add_node(node(f"m{number}"))
        world.add_pod(pod(f"a{number}", "100m", priority=9000, annotations=RESERVE))
    world.add_pod(pod("b", "1"))
    world.read()
    decided = world.cycles()
    assert len(placements(decided)) == 41
    assert estimated_cpu(world) == (PROD_CPU if placements(decided)["b"] == "n" else 0)
