"""Interleavings of the contexts of a log, and the one state to which all of them fold."""

from collections.abc import Sequence
from itertools import chain
from random import Random

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import RecordedEvent
from tests.support.interleavings import interleaved
from tests.support.scheduling_world import World, fold


def requested(view: SchedulerState) -> dict[str, tuple[int, dict[str, int]]]:
    """Node -> (pods, what they ask for), as a fresh index counts it."""
    return totals(CycleInputs(view, config_of(view).profiles))


def totals(cache: CycleInputs) -> dict[str, tuple[int, dict[str, int]]]:
    cache.settle()
    table = cache.table
    return {
        name: (int(table.pods[row]), {r: int(table.requested[row, c]) for r, c in table.columns.items() if table.requested[row, c]})
        for name, row in sorted(table.rows.items())
    }  # fmt: skip


def loads(cache: CycleInputs) -> list[dict[str, list[list[int]]]]:
    """By plugin that keeps loads: node -> its loads, of nodes that are there."""
    table, caches = cache.table, (getattr(each, "load_cache", None) for each in cache.plugin_caches.values())
    load_caches = [each for each in caches if isinstance(each, LoadCache)]
    assert load_caches, "the shipped profile has one"
    return [
        {
            name: load_cache.arrays.loads[:, :, row].tolist()
            for name, row in sorted(table.rows.items())
            if table.alive[row]
        }
        for load_cache in load_caches
    ]


def merged(logs: dict[str, list[RecordedEvent]], random: Random) -> list[RecordedEvent]:
    """The logs in one order, each context's own order kept."""
    return list(interleaved(chain.from_iterable(logs.values()), random))


def all_merges(first: Sequence[RecordedEvent], second: Sequence[RecordedEvent]) -> list[list[RecordedEvent]]:
    if not first or not second:
        return [[*first, *second]]
    return [[first[0], *rest] for rest in all_merges(first[1:], second)] + [
        [second[0], *rest] for rest in all_merges(first, second[1:])
    ]


def assert_one_state(world: World, *, most: int = 400) -> SchedulerState:
    """Every interleaving of the world's logs ends in the same bytes; the state itself is returned."""
    merges = all_merges(world.logs["cluster"], world.logs["scheduling"])
    chosen = merges if len(merges) <= most else Random(7).sample(merges, most)
    digests = {fold(order).encode() for order in chosen}
    assert len(digests) == 1
    return fold(merges[0])
