"""Arrays derived from the State: settled in steps, in sums, and by a replica that does not lead."""

import asyncio
from typing import Any

import numpy as np

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.service import stand_by
from services.scheduler.settings import SchedulerSettings
from services.scheduler.state.scheduler_state import SchedulerState
from tests.support.scheduling_world import World, node, pod, use
from tests.support.waiting import until
from tests.unit.scheduler.plugin_harness import class_of


def test_moves_counted_together_are_what_they_are_one_by_one() -> None:
    pod_classes = [
        class_of(pod("a", cpu="100m", memory=None)),
        class_of(pod("b", cpu=None, memory=None, ports=[80, 443])),
        class_of(pod("c", cpu="2", memory="3Gi", extra={"nvidia.com/gpu": "1"})),
    ]
    moves = [(number % 4, pod_classes[number % 3], 1) for number in range(60)]
    moves += [(number % 4, pod_classes[number % 3], -1) for number in range(12)]
    together, singly = NodeTable(), NodeTable()
    for table in (together, singly):
        for number in range(4):
            table.set_node(f"n{number}", node(f"n{number}", extra={"nvidia.com/gpu": "8"}))
    together.count(moves)
    for move in moves:
        singly.count((move,))
    for field in ("requested", "nonzero_requested", "pods"):
        assert np.array_equal(getattr(together, field), getattr(singly, field)), field
    assert together.ports == singly.ports
    assert together.pods.sum() == 48


class Waiting:
    """A replica that follows: the part of the runner that a standby uses."""

    def __init__(self, view: SchedulerState) -> None:
        self.state = view
        self.settings = SchedulerSettings()
        self.prepared: Any = None
        self._changed = asyncio.Event()

    async def changed(self) -> bool:
        await self._changed.wait()
        self._changed.clear()
        return True

    def change(self) -> None:
        self._changed.set()


async def test_a_standby_has_an_index_ready_that_decides_what_a_new_one_would() -> None:
    world = World()
    use(world, DEFAULT_PROFILE)
    for name in ("a", "b"):
        world.add_node(node(name))
    for number in range(5):
        world.add_pod(pod(f"r{number}", on="a", phase="Running"))
    world.read()
    replica = Waiting(world.view)
    standing_by = asyncio.create_task(stand_by(replica))  # type: ignore[arg-type]  # what it uses of a Runtime
    await asyncio.sleep(0)
    first = replica.prepared
    assert first.config_digest == world.view.config_digest
    world.add_node(node("c", cpu="16", memory="64Gi"))
    world.drop_pod("r0")
    for number in range(3):
        world.add_pod(pod(f"w{number}"))
    world.read()
    replica.change()
    dirty = world.view.dirty
    assert dirty is not None
    await until(lambda: not (dirty.nodes or dirty.pods))
    standing_by.cancel()
    assert replica.prepared is first, "brought up to date, not made anew"
    ready = decide(first.cache, world.now_ns, 16)
    assert ready == decide(CycleInputs(world.view, config_of(world.view).profiles), world.now_ns, 16)
    assert len(ready) == 4  # the cycle and its three pods
