"""A plugin that the scheduler does not have: its package and one line of the registry are all that it needs."""

import pytest

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.extender_server.debug_views import plugin_views
from services.scheduler.framework.config.profiles import read_config
from services.scheduler.plugins.registry import REGISTRY
from shared.domain.component_config import BadConfig
from shared.events.scheduling import CycleDecided
from shared.kube.node import Node
from tests.support.scheduling_world import World, node, placements, pod, unschedulable
from tests.unit.scheduler import power_plugin
from tests.unit.scheduler.power_plugin.plugin import ANNOTATION

REGISTERED = REGISTRY.with_plugins(power_plugin.SPEC)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: NodePower
        weight: 3
  pluginConfig:
  - name: NodePower
    args: {minWatts: 300}
"""


@pytest.fixture
def world() -> World:
    world = World()
    world.cache = CycleInputs(world.view, read_config(CONFIG, REGISTERED).profiles)
    return world


def with_power(name: str, watts: int) -> Node:
    return node(name, annotations={ANNOTATION: str(watts)})


def test_it_is_configured_by_its_name() -> None:
    profile = read_config(CONFIG, REGISTERED).profiles["koord-scheduler"]
    assert "NodePower" in [plugin.name for plugin in profile.filters]
    assert [scorer.weight for scorer in profile.scorers if scorer.plugin.name == "NodePower"] == [3]
    with pytest.raises(BadConfig, match=r"pluginConfig\[0\].args: minWatts is -1; give 0 or more"):
        read_config(CONFIG.replace("300", "-1"), REGISTERED)
    with pytest.raises(BadConfig, match="there is no plugin 'NodePower'"):
        read_config(CONFIG, REGISTRY)


def test_its_filter_and_its_score_decide(world: World) -> None:
    for name, watts in (("dark", 100), ("dim", 400), ("bright", 900)):
        world.add_node(with_power(name, watts))
    world.add_pod(pod("p"))
    world.read()
    decided = world.cycle()
    assert placements(decided) == {"p": "bright"}
    cycle = decided[0].event
    assert isinstance(cycle, CycleDecided)
    assert {rejected.plugin: rejected.nodes for rejected in cycle.classes[0].rejected} == {"NodePower": 1}
    assert cycle.classes[0].best[0].plugin_scores["NodePower"] == 3 * 90


def test_its_reason_is_printed_and_its_hint_requeues_the_pod(world: World) -> None:
    world.add_node(with_power("n", 100))
    world.add_pod(pod("p"))
    world.read()
    refused = unschedulable(world.cycle())["p"]
    assert refused.message == "0/1 nodes are available: 1 Insufficient power, 300 W needed."
    assert REGISTERED.texts.text(refused.code, "300", "zh") == "功率不足，需要 300 W"
    world.wait(11)
    world.add_node(node("n", annotations={ANNOTATION: "100"}, labels={"zone": "a"}))
    world.read()
    assert world.cycle() == [], "a label cannot end the reason"
    world.add_node(node("n", annotations={ANNOTATION: "500"}, labels={"zone": "a"}))
    world.read()
    assert placements(world.cycle()) == {"p": "n"}


def test_its_view_is_served(world: World) -> None:
    world.add_node(with_power("n", 100))
    world.read()
    assert plugin_views(world.indexed())["NodePower/node"]("n") == {"watts": 100}
