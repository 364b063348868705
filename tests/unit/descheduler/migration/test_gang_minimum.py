"""Without a place that is held, a member of a gang moves only while the gang has members to spare."""

from typing import Any

import pytest

from services.descheduler.migration.gang_minimum import breaks_gang
from services.descheduler.migration.pod_migration_job import EVICT_ANNOTATION
from shared.domain.gang import MINIMUM, MODE, NAME
from shared.events.cluster import NodeObserved
from shared.events.intents import EvictionRequested
from shared.events.migration import DrainEnded, DrainRequested
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeSpec
from shared.kube.resource_names import MIGRATION_JOBS
from tests.support.migration import cluster, migration_args, moved_pod
from tests.support.migration_world import CLUSTER, OWN, World


def gang_world(minimum: int, **args: Any) -> World:
    """Ten pods, of which the limits of their workload allow five to move; a gang with this minimum, or none for 0."""
    args |= {"maxMigratingPerNode": 0, "maxMigratingPerWorkload": 5, "maxUnavailablePerWorkload": 5}
    world = World(migration_args(evictQPS=100, objectLimiters={"workload": {"duration": "0s"}}, **args))
    world.workload("web", 10)
    if minimum:
        world.make_gang("web", minimum)
    return world


def moved_at_once(world: World) -> int:
    """Requests all members; returns how many evictions wait at once, at most, until nothing more is requested."""
    for number in range(10):
        world.request(f"j{number}", f"web-{number}", mode="EvictDirectly")
    for _ in range(8):
        world.decide()
        world.gateway(evicts=False)
        world.pass_time(1)
    return sum(isinstance(event, EvictionRequested) for event in world.open.values())


@pytest.mark.parametrize(("minimum", "most"), [(10, 0), (9, 1), (8, 2), (0, 5)])
def test_no_more_members_move_than_the_gang_can_spare(minimum: int, most: int) -> None:
    world = gang_world(minimum)
    assert moved_at_once(world) == most
    assert len(world.state.migration.passed) == most, "no job holds a place that it may not use"


def test_a_job_for_a_gang_without_members_to_spare_fails_with_the_reason() -> None:
    world = gang_world(10)
    world.request("j", "web-0", mode="EvictDirectly")
    world.decide()
    world.gateway()
    status = world.job("j").status
    assert status.phase == "Failed"
    assert "it would leave gang default/web with 9 running members of at least 10" in status.message


def test_an_eviction_that_was_let_pass_waits_while_the_gang_lacks_members() -> None:
    world = gang_world(9)
    world.request("j", "web-0", mode="EvictDirectly")
    for _ in range(2):
        world.decide()
        world.gateway()
    world.remove_pod("default/web-5")  # its node was lost meanwhile
    assert not any(isinstance(event, EvictionRequested) for _ in range(3) for event in world.decide())


def test_an_annotation_of_one_member_does_not_break_its_gang() -> None:
    world = gang_world(10)
    pod = world.pods["default/web-0"]
    annotated = moved_pod("web-0", controller=pod.metadata.controller, node="n0", labels=world.labels,
                          annotations={EVICT_ANNOTATION: "true"})  # fmt: skip
    world.put_pod(annotated)
    world.request("j", "web-0", mode="EvictDirectly")
    world.decide()
    world.gateway()
    assert world.job("j").status.phase == "Failed"


def test_a_drain_without_held_places_leaves_the_members_of_a_gang_at_its_minimum() -> None:
    world = gang_world(10, defaultJobMode="EvictDirectly")
    node = Node(metadata=Metadata(name="n0", uid="n0"), spec=NodeSpec(unschedulable=True))
    world.append(CLUSTER, NodeObserved(node="n0", object=node))
    world.append(OWN, DrainRequested(node="n0", by="ann"))
    (ended,) = (event for event in world.decide() if isinstance(event, DrainEnded))
    assert "it would leave gang default/web with 9" in ended.remaining["default/web-0"]
    assert not [name for resource, name in world.objects if resource == MIGRATION_JOBS]


def test_settings_may_stand_at_the_members_and_the_mode_does_not_count() -> None:
    declared = {NAME: "train", MINIMUM: "2"}
    strict = [moved_pod(f"s-{number}", annotations=declared) for number in range(2)]
    loose = [
        moved_pod(f"l-{number}", annotations={NAME: "loose", MINIMUM: "2", MODE: "NonStrict"}) for number in range(2)
    ]
    facts = cluster([*strict, *loose])
    assert breaks_gang(facts, strict[0]) == "it would leave gang default/train with 1 running members of at least 2"
    assert breaks_gang(facts, loose[0]) == "it would leave gang default/loose with 1 running members of at least 2"
    facts.pods.put(moved_pod("s-2", annotations=declared))
    assert breaks_gang(facts, strict[0]) == ""
    assert breaks_gang(facts, strict[0], {"uid-s-1"}) != ""
