"""Deprecated names of resources, in pods and nodes, mean the same as the current ones. Source: spec/scheduler-core.md 1.2."""

import pytest

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.pod_equivalence_class import class_key, common_part
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.deprecated_resources import RENAMED
from tests.support.scheduling_world import World, node, placements, pod, unschedulable, use

WITHOUT_DEVICES = DEFAULT_PROFILE.replace("      - name: DeviceShare\n        weight: 1\n", "").replace(
    "      - name: DeviceShare\n", ""
)


@pytest.mark.parametrize(("old", "new"), sorted(RENAMED.items()))
@pytest.mark.parametrize("node_is_old", [True, False])
def test_an_old_name_on_either_side_is_todays(old: str, new: str, *, node_is_old: bool) -> None:
    world = World()
    use(world, WITHOUT_DEVICES)  # which has rules of its own for single amounts of GPUs
    world.add_node(node("n", extra={old if node_is_old else new: "10"}))
    world.add_pod(pod("old", extra={old: "6"}))
    world.add_pod(pod("new", extra={new: "6"}))
    world.read()
    records = world.cycles()
    assert len(placements(records)) == 1, "both ask for the same resource"
    (refused,) = unschedulable(records).values()
    assert refused.message == f"0/1 nodes are available: 1 Insufficient {new}."


def test_where_both_names_are_given_the_current_one_counts() -> None:
    world = World()
    world.add_node(node("n", extra={"koordinator.sh/batch-cpu": "9000", "kubernetes.io/batch-cpu": "1000"}))
    world.add_pod(pod("p", extra={"kubernetes.io/batch-cpu": "2000"}))
    world.read()
    assert placements(world.cycles()) == {}


def test_equal_pods_with_old_and_new_names_are_one_class_also_after_a_restart() -> None:
    old, new = pod("old", extra={"koordinator.sh/batch-cpu": "6"}), pod("new", extra={"kubernetes.io/batch-cpu": "6"})
    assert class_key(old) == class_key(new) == class_key(common_part(old))
    world = World()
    world.add_pod(old)
    world.add_pod(new)
    world.read()
    world.view.read()
    assert len(world.view.pod_classes) == 1
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()
    assert restored.pod_classes.keys() == world.view.pod_classes.keys()
