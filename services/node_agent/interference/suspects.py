"""Suspects: best-effort neighbours whose activity rises and falls with a pod's signals."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from services.node_agent.interference.signals import ACTIVITY_FLOORS, SIGNALS
from shared.agents.actions import MAX_SUSPECTS

LEAST_POINTS = 5
"""Rounds below which nothing is correlated."""


class PodSample(NamedTuple):
    """A pod in one round.

    Attributes:
        pod: `namespace/name`. workload: `namespace/Kind/name` of its controller.
        best_effort: it may be a suspect; others may be interfered with.
        signals, activity: as in signals.py; the signals of best-effort pods are not read.
    """

    uid: str
    pod: str
    workload: str
    best_effort: bool
    signals: Mapping[str, float] = {}
    activity: Mapping[str, float] = {}


class Suspect(NamedTuple):
    """A neighbour that may cause a deviation.

    Attributes:
        correlation_percent: of its activity with the signal, 1..100.
        signal: with which it is correlated most. activity: cpu, memory, io or network.
        value: its activity in the newest round: milli-cores, bytes, or bytes a second.
    """

    uid: str
    pod: str
    correlation_percent: int
    signal: str
    activity: str
    value: float


def suspects(
    victim: str, deviating: Sequence[str], rounds: Sequence[Mapping[str, PodSample]], min_correlation_percent: int
) -> tuple[Suspect, ...]:
    """Returns the suspects, the most correlated first; of equal ones the most active, then by name.

    A neighbour that was not there in a round had no activity then.

    Args:
        victim: uid of the pod.
        deviating: its signals that deviate.
        rounds: uid -> sample, oldest round first.
    """
    if not rounds:
        return ()
    found = []
    for neighbour in rounds[-1].values():
        if neighbour.best_effort and neighbour.uid != victim:
            best = max(
                (_suspect(victim, signal, neighbour, rounds) for signal in deviating),
                key=lambda each: each.correlation_percent,
            )
            if best.correlation_percent >= max(min_correlation_percent, 1):
                found.append(best)
    found.sort(key=lambda each: (-each.correlation_percent, -each.value, each.pod))
    return tuple(found[:MAX_SUSPECTS])


def _suspect(victim: str, signal: str, neighbour: PodSample, rounds: Sequence[Mapping[str, PodSample]]) -> Suspect:
    activity = SIGNALS[signal].activity
    pairs = [
        (value, there.activity.get(activity, 0.0) if (there := samples.get(neighbour.uid)) is not None else 0.0)
        for samples in rounds
        if (slowed := samples.get(victim)) is not None and (value := slowed.signals.get(signal)) is not None
    ]
    enough = max((size for _, size in pairs), default=0.0) >= ACTIVITY_FLOORS[activity]
    percent = int(correlation(pairs) * 100) if enough else 0
    return Suspect(neighbour.uid, neighbour.pod, percent, signal, activity, neighbour.activity.get(activity, 0.0))


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns Pearson's correlation, -1..1; 0 for fewer than LEAST_POINTS pairs, or where one side does not vary.

    sum((x - mean x)(y - mean y)) / sqrt(sum((x - mean x)^2) * sum((y - mean y)^2))
    """
    count = len(pairs)
    if count < LEAST_POINTS:
        return 0.0
    mean_x, mean_y = sum(x for x, _ in pairs) / count, sum(y for _, y in pairs) / count
    xy = sum((x - mean_x) * (y - mean_y) for x, y in pairs)
    xx, yy = sum((x - mean_x) ** 2 for x, _ in pairs), sum((y - mean_y) ** 2 for _, y in pairs)
    # A side that varies by rounding alone does not vary.
    if xx <= _ROUNDING * count * mean_x * mean_x or yy <= _ROUNDING * count * mean_y * mean_y:
        return 0.0
    return max(-1.0, min(1.0, xy / sqrt(xx) / sqrt(yy)))


_ROUNDING = 1e-18
