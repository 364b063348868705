"""A report that no measurement can give attracts no pod: it counts as an expired one."""

import pytest
from msgspec.structs import replace

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from shared.events.metrics import Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.node import Node
from tests.support.scheduling_world import START_NS, World, metric, node, pod, report, use

GIB = 1 << 30


def with_capacity(name: str, memory: str = "16Gi") -> Node:
    made = node(name, cpu="8", memory=memory)
    return replace(made, status=replace(made.status, capacity=made.status.allocatable))


def world_of(impossible: object) -> World:
    """Two equal nodes; n0 has a good report of 7 of 8 cores, n1 the one in question."""
    world = World()
    for name in ("n0", "n1"):
        world.add_node(with_capacity(name))
    world.report(metric("n0", cpu="7", memory="1Gi"))
    world.report(impossible)  # type: ignore[arg-type]  # a NodeMetric
    world.add_pod(pod("web", cpu="1"))
    world.read()
    return world


def scores(world: World) -> dict[str, int]:
    best = world.cycle()[0].event.classes[0].best  # type: ignore[attr-defined]  # a CycleDecided
    return {each.node: each.plugin_scores["LoadAwareScheduling"] for each in best}


@pytest.mark.parametrize(("cpu", "memory"), [("-500", "1Gi"), ("1", "9999Ti"), ("1", "-1Gi")])
def test_a_negative_amount_or_one_far_above_the_capacity_is_scored_zero(cpu: str, memory: str) -> None:
    found = scores(world_of(metric("n1", cpu=cpu, memory=memory)))
    assert found["n1"] == 0
    assert found["n0"] > 0


def test_a_report_from_the_future_is_scored_zero_and_hides_no_recorded_report() -> None:
    late = metric("n1", cpu="1", memory="1Gi")
    late = replace(late, status=replace(late.status, update_time=instant_text(START_NS + 86_400 * SECOND)))
    world = world_of(late)
    assert scores(world)["n1"] == 0
    world = world_of(late)
    world.report_usage(report("n1", 1000))
    world.read()
    assert scores(world)["n1"] > 0


def test_a_recorded_report_is_checked_likewise() -> None:
    world = world_of(metric("n1", cpu="1", memory="1Gi"))
    world.report_usage(replace(report("n1", 0, at_ns=START_NS + SECOND), usage=Usage(-500_000, GIB)))
    world.read()
    assert scores(world)["n1"] == 0


def test_a_report_is_believed_once_the_nodes_capacity_allows_it() -> None:
    world = world_of(metric("n1", cpu="1", memory="100Gi"))
    world.add_node(with_capacity("n1", memory="200Gi"))
    world.read()
    assert scores(world)["n1"] > 0


@pytest.mark.parametrize("pods", [1, 3])
def test_a_score_is_at_most_100_whatever_factor_a_pod_declares_for_itself(pods: int) -> None:
    world = World()
    expired = "filterExpiredNodeMetrics: false"
    use(world, DEFAULT_PROFILE.replace(expired, f"{expired}\n      allowCustomizeEstimation: true"))
    world.add_node(with_capacity("n0"))
    world.report(metric("n0", cpu="1", memory="1Gi"))
    factors = {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu":-900,"memory":-900}'}
    for number in range(pods):
        world.add_pod(pod(f"web-{number}", cpu="1", memory="1Gi", annotations=factors))
    world.read()
    events = [record.event for record in world.cycle()]
    recorded = [best.plugin_scores["LoadAwareScheduling"] for best in events[0].classes[0].best]  # type: ignore[attr-defined]
    assert recorded == [100]
