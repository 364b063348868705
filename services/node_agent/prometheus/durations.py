"""Durations of one kind of work by labels, in buckets, for a histogram of the metrics page."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple

BUCKETS_MS = tuple(0.01 * 4**power for power in range(8))
"""Upper bounds of koordlet's histograms, milliseconds. Source: spec/node-agent.md 7.5."""


class Histogram(NamedTuple):
    """One series of a histogram.

    Attributes:
        counts: observations up to each bound of BUCKETS_MS, those of lower ones included; the last one is of all.
        sum_ms: of all observations.
    """

    name: str
    labels: Mapping[str, str]
    counts: tuple[int, ...]
    sum_ms: float


class Durations:
    """The durations since the start."""

    def __init__(self, name: str, labels: tuple[str, ...]) -> None:
        """Makes it without observations.

        Args:
            labels: names of the labels.
        """
        self._name, self._labels = name, labels
        self._found: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, duration_ms: float, *values: str) -> None:
        """Adds an observation.

        Args:
            values: of the labels, in their order.
        """
        counts, sums = self._found.setdefault(values, ([0] * (len(BUCKETS_MS) + 1), [0.0]))
        counts[bisect_left(BUCKETS_MS, duration_ms)] += 1
        sums[0] += duration_ms

    def histograms(self) -> Iterator[Histogram]:
        """Yields the series."""
        for values, (counts, sums) in self._found.items():
            up_to = tuple(sum(counts[: place + 1]) for place in range(len(counts)))
            yield Histogram(self._name, dict(zip(self._labels, values, strict=True)), up_to, sums[0])
