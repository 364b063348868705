"""A binding that another scheduler requests is decided in its turn, on the state of that moment, and records the inputs
that it used."""

import asyncio

from services.scheduler.extender_server.api_types import ExtenderBindingArgs
from services.scheduler.quota.charge_client import ChargeClient
from shared.events.scheduling import CycleDecided
from shared.kube.elastic_quota import QUOTA_NAME
from tests.support.scheduling_world import node, placements, pod
from tests.unit.scheduler.leading import LeadingRuntime
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

EXTENDED = "kube-scheduler"
ARGS = ExtenderBindingArgs(pod_name="p", pod_namespace="d", pod_uid="p", node="n0")


def waiting_pod() -> tuple[Teams, LeadingRuntime]:
    """One pod of another scheduler that waits, in a quota with room, and an extender that leads."""
    world = Teams(quota("a", "6", "6"))
    world.add_pod(pod("p", cpu="2", memory=None, scheduler=EXTENDED, labels={QUOTA_NAME: "a"}))
    world.read()
    runtime = LeadingRuntime(world, extender_timeout_s=0.2)
    runtime.resources.cache, runtime.resources.config_digest = world.indexed(), "c0ffee"
    runtime.resources.charge_client = ChargeClient(runtime, 1.0)  # type: ignore[arg-type]  # the parts that it uses
    return world, runtime


def arrives(world: Teams) -> None:
    """The scheduler receives all that the cluster's log has."""
    world.read()


async def test_a_pod_that_is_deleted_while_the_request_waits_for_its_turn_is_not_bound() -> None:
    world, runtime = waiting_pod()
    async with runtime.resources.turn:
        binding = asyncio.create_task(runtime.resources.bind(ARGS))
        await asyncio.sleep(0.02)
        world.add_pod(pod("p", cpu="2", memory=None, scheduler=EXTENDED, labels={QUOTA_NAME: "a"}, deleting=True))
        arrives(world)
    assert "is being deleted" in await binding
    assert placements(world.logs["scheduling"]) == {}


async def test_a_pod_that_is_gone_when_its_turn_comes_is_not_bound() -> None:
    world, runtime = waiting_pod()
    async with runtime.resources.turn:
        binding = asyncio.create_task(runtime.resources.bind(ARGS))
        await asyncio.sleep(0.02)
        world.drop_pod("p")
        arrives(world)
    assert await binding == "pod d/p is gone"


async def test_a_replica_that_stops_leading_while_the_request_waits_for_its_turn_does_not_bind() -> None:
    world, runtime = waiting_pod()
    async with runtime.resources.turn:
        binding = asyncio.create_task(runtime.resources.bind(ARGS))
        await asyncio.sleep(0.02)
        runtime.resources.cache = None
    assert "does not lead" in await binding
    assert placements(world.logs["scheduling"]) == {}


async def test_the_cycle_records_the_instant_the_positions_and_the_configuration_of_its_evaluation() -> None:
    world, runtime = waiting_pod()
    instants: list[int] = []
    clock = runtime.now_ns

    def noted() -> int:
        instants.append(clock())
        return instants[-1]

    runtime.now_ns = noted  # type: ignore[method-assign]
    before = dict(world.view.positions)

    def a_node_comes() -> None:
        world.add_node(node("late"))
        world.fold(world.logs["cluster"][-1])

    runtime.during_charge = a_node_comes
    await runtime.resources.bind(ARGS)
    [cycle] = [r.event for r in world.logs["scheduling"] if isinstance(r.event, CycleDecided)]
    assert (cycle.now_ns, cycle.seen, cycle.config) == (instants[0], before, "c0ffee")
    assert placements(world.logs["scheduling"]) == {"p": "n0"}
