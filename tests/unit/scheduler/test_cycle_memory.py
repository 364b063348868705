"""A cycle leaves nothing that only the cyclic garbage collector could free: services let it run seldom."""

import gc
from collections.abc import Iterator

import pytest

from cli.bench.scheduler_workloads import NOW_NS, gang_events, gpu_devices, nodes, pods
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.events.scheduling import PodPlaced

NODES, PODS, PODS_OF_A_CYCLE = 40, 30, 10


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", ["equal", "different", "constrained", "numa", "gpu-joint"])
@pytest.mark.usefixtures("without_collections")
def test_a_cycle_is_freed_without_a_collection(kind: str) -> None:
    engine = InMemoryScheduler()
    engine.observe(nodes(NODES, NODES if kind in ("numa", "gpu-joint") else 0), NOW_NS)
    engine.observe(gpu_devices(NODES if kind == "gpu-joint" else 0), NOW_NS)
    engine.observe(pods(kind, 0, PODS), NOW_NS)
    before = transactions()
    placed = sum(
        isinstance(event, PodPlaced) for cycle in range(5) for event in engine.decide(NOW_NS + cycle, PODS_OF_A_CYCLE)
    )
    assert placed >= PODS_OF_A_CYCLE
    assert transactions() == before


@pytest.mark.usefixtures("without_collections")
def test_a_cycle_of_gangs_is_freed_without_a_collection() -> None:
    engine = InMemoryScheduler(backfill=True)
    engine.observe(nodes(NODES), NOW_NS)
    engine.observe(gang_events("large", NODES * 32 + 1, 1000, ""), NOW_NS)  # fits nowhere, so that a start is planned
    engine.observe(gang_events("small", 4, 500, ""), NOW_NS)
    before = transactions()
    placed = sum(isinstance(event, PodPlaced) for cycle in range(5) for event in engine.decide(NOW_NS + cycle, 256))
    assert placed == 4
    assert transactions() == before


def transactions() -> int:
    return sum(isinstance(each, CycleTransaction) for each in gc.get_objects())
