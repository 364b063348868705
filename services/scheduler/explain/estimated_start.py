"""Estimates when a waiting gang is placed, from the recorded waits of similar gangs.

The interval is that of order statistics: of n waits that are longer than the gang's own up to now, those at the ranks

    floor((n + 1) * (100 - level) / 200)    ceil((n + 1) * (100 + level) / 200)

bound the next wait in `level` percent of cases, if the next gang is one like them (conformal prediction). A cluster
whose load changes is not like its past, so the level is chosen by a check: the lowest of `LEVELS_PERCENT` at which
`GOAL_PERCENT` of the newest gangs of the history were placed within the interval that was computed for them from the
gangs placed before. Nothing that came later is used for any of them.

Source: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005, ch. 2.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from services.scheduler.state.gang_wait_history import GangWait

GOAL_PERCENT = 80
"""Share of intervals that are to hold."""

LEVELS_PERCENT = (80, 85, 90, 95, 98)

ENOUGH = 20
"""Similar gangs that an interval needs: its ends are then the second and the second last of them at the lowest level."""

NEWEST = 200
"""Similar gangs that count at most: older ones saw another cluster."""

CHECKED = 100
"""Gangs of the history by which the level is chosen."""


class GangFeatures(NamedTuple):
    """The features by which gangs are similar.

    Attributes:
        pods: that are placed together.
        request: of all of them; resource -> amount.
    """

    pods: int
    request: dict[str, int]
    quota: str
    priority: str
    qos: str


class Estimate(NamedTuple):
    """When a waiting gang is placed.

    Attributes:
        earliest_ns, latest_ns: bounds of the wait from now on; 0 where it may be placed at once.
        similar: number of gangs that the interval rests on; alike: in what they are like this one.
        checked, held: gangs of the history by which the interval was checked, and how many of theirs held.
    """

    earliest_ns: int
    latest_ns: int
    similar: int
    alike: str
    checked: int
    held: int


class TooLittleHistory(NamedTuple):
    """There is no estimate.

    Attributes:
        placed: number of gangs in the history; longer: how many of them waited longer than this one has up to now.
    """

    placed: int
    longer: int


def features_of(wait: GangWait) -> GangFeatures:
    """Returns the features of a gang of the history."""
    return GangFeatures(wait.pods, wait.request, wait.quota, wait.priority, wait.qos)


def _size(amount: int) -> int:
    """Returns the power of two that an amount reaches, so that similar amounts are equal."""
    return amount.bit_length()


def _amounts(gang: GangFeatures) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, _size(amount)) for name, amount in gang.request.items() if amount))


_SIMILARITIES: tuple[tuple[str, Callable[[GangFeatures], tuple[object, ...]]], ...] = (
    (
        "quota, priority class, QoS, size and request",
        lambda gang: (gang.quota, gang.priority, gang.qos, _size(gang.pods), _amounts(gang)),
    ),
    ("priority class, QoS, size and request", lambda gang: (gang.priority, gang.qos, _size(gang.pods), _amounts(gang))),
    ("priority class and request", lambda gang: (gang.priority, _amounts(gang))),
    ("request", lambda gang: (_amounts(gang),)),
    ("requested resources", lambda gang: tuple(name for name, _ in _amounts(gang))),
    ("being a gang", lambda _: ()),
)
"""From the most similar gangs to all: the first with enough gangs is used."""


class _Past(NamedTuple):
    """A gang of the history with its keys, one for each similarity."""

    wait: GangWait
    keys: tuple[tuple[object, ...], ...]


def estimate(history: Sequence[GangWait], gang: GangFeatures, waited_ns: int) -> Estimate | TooLittleHistory:
    """Estimates how much longer a gang waits that has waited for `waited_ns` so far.

    Args:
        history: in the order of their placement.
    """
    past = [_Past(wait, _keys(features_of(wait))) for wait in history]
    found = _similar(past, _keys(gang), waited_ns)
    if found is None:
        return TooLittleHistory(len(past), sum(each.wait.waited_ns > waited_ns for each in past))
    alike, waits = found
    checks = list(_checks(past, waited_ns))
    level = _lowest_level(checks)
    earliest_ns, latest_ns = interval(waits, level)
    return Estimate(
        max(earliest_ns - waited_ns, 0),
        latest_ns - waited_ns,
        len(waits),
        alike,
        len(checks),
        _held(checks, level),
    )


def interval(waits: Sequence[int], level: int) -> tuple[int, int]:
    """Returns the bounds between which the next wait is in `level` percent of cases.

    Args:
        waits: sorted; at least one.
    """
    count = len(waits)
    low = (count + 1) * (100 - level) // 200
    high = -(-(count + 1) * (100 + level) // 200)
    return waits[max(low, 1) - 1], waits[min(high, count) - 1]


def _keys(gang: GangFeatures) -> tuple[tuple[object, ...], ...]:
    return tuple(key_of(gang) for _, key_of in _SIMILARITIES)


def _similar(past: Sequence[_Past], keys: Sequence[tuple[object, ...]], waited_ns: int) -> tuple[str, list[int]] | None:
    """Returns the sorted waits of the newest similar gangs that waited longer; None where there are too few of any."""
    longer = [each for each in past if each.wait.waited_ns > waited_ns or not waited_ns]
    for number, (alike, _) in enumerate(_SIMILARITIES):
        key = keys[number]
        waits = [each.wait.waited_ns for each in longer if each.keys[number] == key]
        if len(waits) >= ENOUGH:
            return alike, sorted(waits[-NEWEST:])
    return None


def _checks(past: Sequence[_Past], waited_ns: int) -> Iterator[tuple[int, list[int]]]:
    """Yields for each of the newest gangs of the history that waited so long its wait, and the sorted waits from which
    its interval was computed when it had waited so long: those of gangs that had been placed by then.
    """
    placed = [each.wait.placed_ns for each in past]
    later = [each for each in past if each.wait.waited_ns > waited_ns or not waited_ns]
    for each in later[-CHECKED:]:
        estimated_at_ns = each.wait.placed_ns - each.wait.waited_ns + waited_ns
        found = _similar(past[: bisect_right(placed, estimated_at_ns)], each.keys, waited_ns)
        if found is not None:
            yield each.wait.waited_ns, found[1]


def _lowest_level(checks: Sequence[tuple[int, list[int]]]) -> int:
    """Returns the lowest level at which enough intervals held; the highest where none is enough."""
    goal = GOAL_PERCENT * len(checks)
    return next((level for level in LEVELS_PERCENT if 100 * _held(checks, level) >= goal), LEVELS_PERCENT[-1])


def _held(checks: Sequence[tuple[int, list[int]]], level: int) -> int:
    count = 0
    for wait, waits in checks:
        low, high = interval(waits, level)
        count += low <= wait <= high
    return count
