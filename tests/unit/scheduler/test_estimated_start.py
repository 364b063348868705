"""The estimated start of a gang: ranks of the waits of similar gangs, checked on a recorded trace."""

import csv
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from services.scheduler.explain.estimated_start import (
    ENOUGH,
    GOAL_PERCENT,
    Estimate,
    GangFeatures,
    TooLittleHistory,
    estimate,
    features_of,
    interval,
)
from services.scheduler.state.gang_wait_history import KEPT, GangWait
from shared.kube.instants import SECOND

OPENB = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[3] / "../shared")) / "data" / "openb"
ARRIVE_WITHIN_S = 60
SMALL = GangFeatures(4, {"cpu": 4_000}, "team-a", "koord-prod", "LS")
LARGE = GangFeatures(64, {"cpu": 640_000}, "team-b", "koord-batch", "BE")


def waits(features: GangFeatures, seconds: Sequence[int], *, first_s: int = 0) -> list[GangWait]:
    """Gangs that were placed a second after each other."""
    return [
        GangWait(number, f"d/g{number}", (first_s + number) * SECOND, each * SECOND, *features)
        for number, each in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("count", "level", "ranks"), [(20, 80, (2, 19)), (9, 80, (1, 9)), (99, 80, (10, 90)), (99, 90, (5, 95))]
)
def test_the_interval_is_bounded_by_ranks_of_the_waits(count: int, level: int, ranks: tuple[int, int]) -> None:
    assert interval(range(1, count + 1), level) == ranks


def test_waits_of_the_most_similar_gangs_count() -> None:
    history = waits(LARGE, [1000] * 50) + waits(SMALL, list(range(1, ENOUGH + 1)))
    found = estimate(history, SMALL, 0)
    assert isinstance(found, Estimate)
    assert (found.earliest_ns, found.latest_ns) == (2 * SECOND, 19 * SECOND)
    assert (found.similar, found.alike) == (ENOUGH, "quota, priority class, QoS, size and request")


def test_without_enough_of_them_less_similar_ones_count() -> None:
    history = waits(SMALL._replace(quota="team-c"), [7] * ENOUGH) + waits(SMALL, [1] * (ENOUGH - 1))
    found = estimate(history, SMALL, 0)
    assert isinstance(found, Estimate)
    assert (found.similar, found.alike) == (2 * ENOUGH - 1, "priority class, QoS, size and request")


def test_a_gang_that_has_waited_is_compared_with_those_that_waited_longer() -> None:
    history = waits(SMALL, [1] * 100 + list(range(101, 121)))
    found = estimate(history, SMALL, 100 * SECOND)
    assert isinstance(found, Estimate)
    assert (found.earliest_ns, found.latest_ns, found.similar) == (2 * SECOND, 19 * SECOND, ENOUGH)


def test_too_little_history_is_no_estimate() -> None:
    assert estimate([], SMALL, 0) == TooLittleHistory(0, 0)
    assert estimate(waits(SMALL, [5] * (ENOUGH - 1)), SMALL, 0) == TooLittleHistory(ENOUGH - 1, ENOUGH - 1)
    assert estimate(waits(SMALL, [5] * 90 + [50] * 3), SMALL, 20 * SECOND) == TooLittleHistory(93, 3)


def test_intervals_that_did_not_hold_make_the_next_ones_wider() -> None:
    """Every fifth gang waits far longer than the others: at the lowest level too few intervals hold."""
    steady = waits(SMALL, [10] * 400)
    changing = waits(SMALL, [10 + 40 * (number % 4 == 0) + number // 4 for number in range(400)])
    narrow, wide = estimate(steady, SMALL, 0), estimate(changing, SMALL, 0)
    assert isinstance(narrow, Estimate)
    assert isinstance(wide, Estimate)
    assert (narrow.checked, narrow.held) == (100, 100)
    assert wide.latest_ns > interval(sorted(each.waited_ns for each in changing[-200:]), 80)[1]


def recorded_gangs() -> list[GangWait]:
    """The trace's pods of one request that were created within a minute of each other, as gangs of two or more: each
    waited from the creation of its last pod until the last one was scheduled.
    """
    with (OPENB / "openb_pod_list_default.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    open_gangs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    gangs: list[list[dict[str, str]]] = []
    for row in rows:
        key = tuple(row[name] for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos"))
        gang = open_gangs.get(key)
        if gang is None or int(row["creation_time"]) - int(gang[-1]["creation_time"]) > ARRIVE_WITHIN_S:
            gang = open_gangs[key] = []
            gangs.append(gang)
        gang.append(row)
    return sorted(_waits_of(gangs), key=lambda wait: wait.placed_ns)


def _waits_of(gangs: Sequence[Sequence[dict[str, str]]]) -> Iterator[GangWait]:
    for number, gang in enumerate(gangs):
        if len(gang) < 2 or not all(row["scheduled_time"] for row in gang):
            continue
        complete = max(int(row["creation_time"]) for row in gang)
        placed = max(complete, *(int(row["scheduled_time"]) for row in gang))
        first = gang[0]
        gpus = int(first["gpu_milli"]) if first["num_gpu"] == "1" else 1000 * int(first["num_gpu"])
        request = {"cpu": int(first["cpu_milli"]), "memory": int(first["memory_mib"]) << 20, "gpu": gpus}
        total = {name: amount * len(gang) for name, amount in request.items() if amount}
        yield GangWait(
            number, "", placed * SECOND, (placed - complete) * SECOND, len(gang), total, "", "", first["qos"]
        )


@pytest.mark.parametrize("waited_s", [0, 10, 60])
def test_four_of_five_intervals_hold_on_the_second_half_of_a_recorded_trace(waited_s: int) -> None:
    """Each gang of the later half is estimated from the gangs that had been placed by then, as the command does."""
    history, estimated, held = recorded_gangs(), 0, 0
    assert len(history) > 600
    placed = [wait.placed_ns for wait in history]
    for wait in history[len(history) // 2 :]:
        if waited_s and wait.waited_ns <= waited_s * SECOND:
            continue
        known = bisect_right(placed, wait.placed_ns - wait.waited_ns + waited_s * SECOND)
        found = estimate(history[max(known - KEPT, 0) : known], features_of(wait), waited_s * SECOND)
        assert isinstance(found, Estimate)
        estimated += 1
        held += found.earliest_ns <= wait.waited_ns - waited_s * SECOND <= found.latest_ns
    assert estimated >= 100
    assert 100 * held >= GOAL_PERCENT * estimated, f"{held} of {estimated}"
