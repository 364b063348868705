"""Another scheduler sees a victim leave before this one does: meanwhile no other pod is evicted for the same pod, and
no pod twice."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from services.scheduler.extender_server.answer_extender_verbs import filter_result
from services.scheduler.extender_server.api_types import ExtenderArgs, MetaPod, MetaVictims
from services.scheduler.extender_server.extender_service import ExtenderService
from shared.domain.gang import POD_GROUP_LABEL
from shared.events import Cause, Draft, RecordedEvent
from shared.events.cluster import EvictionRejected, ObjectObserved
from shared.events.intents import EvictionRequested
from shared.kube.resource_names import POD_GROUPS
from tests.support.scheduling_world import World, node, pod

URGENT = pod("urgent", cpu="4", priority=100)
ROOM = {name: MetaVictims(pods=(MetaPod(uid=f"{name}-1"),)) for name in ("a", "b")}


class Runtime:
    """The parts of a runtime that an extender uses, on the logs of a world."""

    def __init__(self, world: World, timeout_s: float) -> None:
        self.settings = SimpleNamespace(extender_profile="", extender_timeout_s=timeout_s, extender_max_victims=2)
        self.draining = asyncio.Event()
        self._world = world

    def now_ns(self) -> int:
        return self._world.now_ns

    async def append(self, drafts: Iterable[Draft], **_: Any) -> list[RecordedEvent]:
        records = [self._world.append("scheduling", draft.event, draft.cause) for draft in drafts]
        for record in records:
            self._world.view.apply(record)
        return records


@pytest.fixture
def world() -> World:
    """Two nodes, each full of one pod."""
    world = World()
    for name in ("a", "b"):
        world.add_node(node(name, cpu="4"))
        world.add_pod(pod(f"{name}-1", cpu="4", on=name, phase="Running"))
    world.add_pod(URGENT)
    world.read()
    return world


def extender(world: World, timeout_s: float = 0.05) -> ExtenderService:
    found = ExtenderService(Runtime(world, timeout_s))  # type: ignore[arg-type]
    found.cache = world.indexed()
    return found


def evicted(world: World) -> list[str]:
    events = [record.event for record in world.logs["scheduling"]]
    return [event.pod_uid for event in events if isinstance(event, EvictionRequested)]


async def test_no_other_nodes_pods_are_evicted_while_the_first_victims_are_still_there(world: World) -> None:
    ours = extender(world)
    assert await ours.preempt(URGENT, ROOM) == {}, "nothing is known of the eviction in time"
    assert await ours.preempt(URGENT, ROOM) == {}, "requested again: the same node"
    assert await ours.preempt(URGENT, {"b": ROOM["b"]}) == {}, "who asks has seen a-1 leave"
    assert evicted(world) == ["a-1"]
    world.drop_pod("a-1")
    world.add_pod(pod("late", cpu="4", on="a", phase="Running"))  # somebody took the room
    world.read()
    await ours.preempt(URGENT, {"b": ROOM["b"]})
    assert evicted(world) == ["a-1", "b-1"]


async def test_where_the_caller_sees_room_before_we_do_the_answer_waits_for_us(world: World) -> None:
    ours = extender(world, timeout_s=5)
    evicting = asyncio.create_task(ours.preempt(URGENT, ROOM))
    while not evicted(world):
        await asyncio.sleep(0)
    world.add_pod(pod("a-1", cpu="4", on="a", phase="Running", deleting=True))
    world.read()
    assert list(await evicting) == ["a"]
    requesting = asyncio.create_task(ours.query_after_evictions(ExtenderArgs(pod=URGENT, node_names=("a",))))
    await asyncio.sleep(0.02)
    assert not requesting.done()
    world.drop_pod("a-1")
    world.read()
    args = ExtenderArgs(pod=URGENT, node_names=("a",))
    assert filter_result(args, await requesting).node_names == ("a",)


async def test_no_request_waits_for_a_node_that_it_does_not_name_or_that_no_victim_leaves(world: World) -> None:
    ours = extender(world)
    await ours.preempt(URGENT, ROOM)
    ours._timeout_s = 60
    async with asyncio.timeout(5):
        await ours.query_after_evictions(ExtenderArgs(pod=URGENT, node_names=("b",)))
        await ours.query_after_evictions(ExtenderArgs(pod=pod("other", cpu="4", priority=100), node_names=("a", "b")))


async def test_concurrent_callers_evict_a_victim_once(world: World) -> None:
    world.add_pod(pod("other", cpu="4", priority=100))
    world.read()
    ours = extender(world)
    callers = [ours.preempt(each, {"a": ROOM["a"]}) for each in (URGENT, URGENT, pod("other", cpu="4", priority=100))]
    async with ours.turn:  # a cycle is under way
        waiting = [asyncio.create_task(caller) for caller in callers]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert evicted(world) == ["a-1"]


async def test_nobody_is_evicted_for_a_node_that_was_taken_while_the_caller_waited_for_its_turn(world: World) -> None:
    ours = extender(world)
    async with ours.turn:
        evicting = asyncio.create_task(ours.preempt(URGENT, {"a": ROOM["a"]}))
        await asyncio.sleep(0)
        world.add_pod(pod("late", cpu="1", on="a", phase="Running"))
        world.read()
    assert await evicting == {}
    assert evicted(world) == []


async def test_a_victim_that_stays_makes_those_of_the_next_node_go(world: World) -> None:
    ours = extender(world, timeout_s=5)
    evicting = asyncio.create_task(ours.preempt(URGENT, ROOM))
    while not evicted(world):
        await asyncio.sleep(0)
    (eviction,) = (record for record in world.logs["scheduling"] if isinstance(record.event, EvictionRequested))
    world.observe(EvictionRejected(pod="d/a-1", pod_uid="a-1", reason="budget"), Cause("scheduling", eviction.seq))
    world.read()
    while len(evicted(world)) < 2:
        await asyncio.sleep(0)
    world.add_pod(pod("b-1", cpu="4", on="b", phase="Running", deleting=True))
    world.read()
    assert list(await evicting) == ["b"]


@pytest.mark.parametrize(
    ("victims", "priority"),
    [(("b-1",), 100), (("a-1", "b-1"), 100), (("a-1",), 0), (("a-1", "x", "y"), 100)],
    ids=["on another node", "one on another node", "of equal priority", "too many"],
)
async def test_the_callers_word_alone_evicts_nobody(world: World, victims: tuple[str, ...], priority: int) -> None:
    world.add_pod(pod("asking", cpu="4", priority=priority))
    world.read()
    named = {"a": MetaVictims(pods=tuple(MetaPod(uid=uid) for uid in victims))}
    # The caller may state any priority: the observed one counts.
    assert await extender(world).preempt(pod("asking", cpu="4", priority=1000), named) == {}
    assert evicted(world) == []


async def test_a_node_with_a_fault_does_not_exclude_the_others(world: World) -> None:
    ours = extender(world)
    await ours.preempt(URGENT, {"a": ROOM["b"], "b": ROOM["b"]})
    assert evicted(world) == ["b-1"]


async def test_a_pod_that_is_not_observed_or_has_a_node_evicts_nobody(world: World) -> None:
    world.add_node(node("c", cpu="4"))
    world.add_pod(pod("bound", cpu="4", on="c", phase="Running", priority=100))
    world.read()
    ours = extender(world)
    for name in ("invented", "bound"):
        assert await ours.preempt(pod(name, cpu="4", priority=100), ROOM) == {}
    assert evicted(world) == []


def gang_world(**priorities: int) -> World:
    """Two nodes, each full of one pod of a gang that needs both."""
    world = World()
    body = {"metadata": {"name": "job", "namespace": "d"}, "spec": {"minMember": 2}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name="d/job", uid="job", object=body))
    labels = {POD_GROUP_LABEL: "job"}
    for name in ("a", "b"):
        world.add_node(node(name, cpu="4"))
        priority = priorities.get(name, 0)
        world.add_pod(pod(f"{name}-1", cpu="4", on=name, phase="Running", labels=labels, priority=priority))
    world.add_pod(URGENT)
    world.read()
    return world


async def test_the_gang_of_a_victim_is_evicted_as_a_whole() -> None:
    world = gang_world()
    await extender(world).preempt(URGENT, {"a": ROOM["a"]})
    assert evicted(world) == ["a-1", "b-1"]


async def test_no_victim_is_evicted_whose_gang_may_not_end() -> None:
    world = gang_world(b=200)
    assert await extender(world).preempt(URGENT, {"a": ROOM["a"]}) == {}
    assert evicted(world) == []
