"""Pods that their quota refused and that are not tried now keep no capacity from the others of their quota."""

import pytest

from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import waiting_pods
from shared.events.cluster import ObjectDeleted
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.resource_names import POD_GROUPS
from tests.support.scheduling_world import placements, pod, unschedulable
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota
from tests.unit.scheduler.test_gangs import add, bind, member, pod_group

OF_TEAM = {QUOTA_NAME: "team"}


def full_team() -> Teams:
    """A quota for one core that a member of a gang has; another member and, behind it, `second` were refused."""
    world = Teams(quota("team", "1", "1"))
    pod_group(world, "job", 1)
    add(world, member("job", "runs", labels=OF_TEAM))
    bind(world, world.cycle())
    add(world, member("job", "first", labels=OF_TEAM))
    world.wait(1)
    add(world, pod("second", cpu="1", memory=None, labels=OF_TEAM))
    assert unschedulable(world.cycle()).keys() == {"first", "second"}
    return world


def states(world: Teams) -> dict[str, str]:
    return {
        each.record.uid: each.state.code for each in waiting_pods(world.view, rules_in_force(world.view), world.now_ns)
    }


@pytest.mark.parametrize("is_freed_first", [True, False])
def test_capacity_goes_to_the_next_pod_once_the_first_is_held_back(is_freed_first: bool) -> None:
    world = full_team()
    for is_freed in (is_freed_first, not is_freed_first):
        if is_freed:
            world.drop_pod("runs")
        else:
            world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="job"))
        world.read()
        world.indexed().settle()
    world.wait(20)
    assert states(world) == {"first": "GangUnknown", "second": "InQueue"}
    assert placements(world.cycle()).keys() == {"second"}


def test_a_pod_that_is_no_longer_held_back_has_its_turn_again() -> None:
    world = full_team()
    world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="job"))
    world.read()
    world.indexed().settle()
    world.drop_pod("runs")
    pod_group(world, "job", 1)
    world.read()
    world.wait(20)
    assert placements(world.cycle()).keys() == {"first"}
