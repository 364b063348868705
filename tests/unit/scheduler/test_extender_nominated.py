"""Capacity kept for a nominated pod is kept from pods of other schedulers too, unless their priority is higher."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from services.scheduler.extender_server.answer_extender_verbs import filter_result
from services.scheduler.extender_server.api_types import ExtenderArgs, ExtenderBindingArgs, MetaPod, MetaVictims
from services.scheduler.extender_server.evaluate_pod_outside_cycle import EvaluationQuery
from services.scheduler.extender_server.extender_service import ExtenderService
from services.scheduler.quota.charge_client import ChargeClient
from shared.events import Draft, RecordedEvent
from shared.events.intents import EvictionRequested
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from tests.support.scheduling_world import World, node, placements, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

EXTENDED = "kube-scheduler"


class Runtime:
    """The parts of a runtime that an extender and its charge client use, on the logs of a world."""

    def __init__(self, world: World) -> None:
        self.settings = SimpleNamespace(extender_profile="", extender_timeout_s=0.05, extender_max_victims=32)
        self.draining = asyncio.Event()
        self.state = world.view
        self.bus = world
        self.writer = SimpleNamespace(epoch=world.ledger.epoch + 1 if isinstance(world, Teams) else 1)
        self._world = world

    def now_ns(self) -> int:
        return self._world.now_ns

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing arrives while a decision is made

    async def append(self, drafts: tuple[Draft, ...], **_: Any) -> list[RecordedEvent]:
        return self._world.append_drafts(drafts)


def extender(world: World) -> ExtenderService:
    runtime = Runtime(world)
    found = ExtenderService(runtime)  # type: ignore[arg-type]  # the parts that it uses
    found.cache = world.indexed()
    found.charge_client = ChargeClient(runtime, 1.0)  # type: ignore[arg-type]
    return found


def other(name: str, cpu: str = "2", priority: int = 50, **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, scheduler=EXTENDED, priority=priority, **more)


def nominated_on_a() -> World:
    """Node a has 4 cores; vip of priority 1000 is nominated for all of them, and its victim leaves."""
    world = World()
    world.add_node(node("a", cpu="4"))
    world.add_pod(pod("victim", cpu="2", memory=None, on="a", phase="Running", priority=5))
    world.read()
    world.add_pod(pod("vip", cpu="4", memory=None, priority=1000))
    for each in (other("lesser"), other("equal", priority=1000), other("higher", priority=2000)):
        world.add_pod(each)
    world.read()
    world.cycle()
    assert world.view.pods["vip"].nominated == "a"
    return world


def admitted(world: World, queried: Pod) -> bool:
    answer = filter_result(
        ExtenderArgs(pod=queried, node_names=("a",)), EvaluationQuery(world.indexed(), queried, world.now_ns)
    )
    return answer.node_names == ("a",)


@pytest.mark.parametrize(
    ("name", "priority", "is_admitted"), [("lesser", 50, False), ("equal", 1000, False), ("higher", 2000, True)]
)
def test_the_filter_admits_only_pods_of_higher_priority_into_capacity_kept_for_a_nominated_pod(
    name: str, priority: int, *, is_admitted: bool
) -> None:
    world = nominated_on_a()
    assert admitted(world, other(name, priority=priority)) is is_admitted, "the victim leaves two cores free meanwhile"
    world.drop_pod("victim")
    world.read()
    assert admitted(world, other(name, priority=priority)) is is_admitted
    world.drop_pod("vip")
    world.read()
    assert admitted(world, other(name, priority=priority)), "its nomination ended with it"


def evicted(world: World) -> list[str]:
    return [record.event.pod_uid for record in world.logs["scheduling"] if isinstance(record.event, EvictionRequested)]


async def test_a_pod_is_not_bound_into_capacity_kept_for_a_nominated_pod_of_higher_priority() -> None:
    world = nominated_on_a()
    ours = extender(world)
    refused = await ours.bind(ExtenderBindingArgs(pod_name="lesser", pod_namespace="d", pod_uid="lesser", node="a"))
    assert refused.startswith("node a does not take pod d/lesser: ")
    assert placements(world.logs["scheduling"]) == {}
    await ours.bind(ExtenderBindingArgs(pod_name="higher", pod_namespace="d", pod_uid="higher", node="a"))
    assert placements(world.logs["scheduling"]) == {"higher": "a"}


async def test_nobody_is_evicted_for_a_pod_that_a_nominated_pod_keeps_out() -> None:
    world = nominated_on_a()
    world.add_pod(pod("late", cpu="2", memory=None, on="a", phase="Running", priority=5))
    world.read()
    before = evicted(world)
    late = {"a": MetaVictims(pods=(MetaPod(uid="late"),))}
    assert await extender(world).preempt(other("lesser", cpu="1"), late) == {}
    assert evicted(world) == before


def test_a_pod_that_is_nominated_itself_is_not_kept_out_by_its_own_nomination() -> None:
    world = nominated_on_a()
    world.drop_pod("victim")
    world.read()
    assert admitted(world, pod("vip", cpu="4", memory=None, priority=1000))


def test_quota_kept_for_a_nominated_pod_is_not_charged_for_another_of_its_own_priority_or_lower() -> None:
    def of(name: str, priority: int, on: str = "", **more: Any) -> Pod:
        phase = "Running" if on else "Pending"
        return pod(name, cpu="2", memory=None, priority=priority, labels={QUOTA_NAME: "a"}, on=on, phase=phase, **more)

    world = Teams(quota("a", "4", "4"))
    world.add_pod(of("low", 0, "n0"))
    world.add_pod(of("mid", 5, "n1"))
    world.read()
    world.add_pod(of("vip", 100))
    world.read()
    world.cycle()
    assert (evicted(world), world.view.pods["vip"].nominated != "") == (["low"], True)
    world.drop_pod("low")
    for name, priority in (("lesser", 0), ("higher", 200)):
        world.add_pod(of(name, priority, scheduler=EXTENDED))
    world.read()
    ours = extender(world)
    refused = asyncio.run(
        ours.bind(ExtenderBindingArgs(pod_name="lesser", pod_namespace="d", pod_uid="lesser", node="n0"))
    )
    assert "refused by its quota" in refused
    asyncio.run(ours.bind(ExtenderBindingArgs(pod_name="higher", pod_namespace="d", pod_uid="higher", node="n0")))
    assert placements(world.logs["scheduling"]) == {"higher": "n0"}
