"""Recorded metric stores, with the window queries of strategies."""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.kube.instants import instant_ns

Labels = tuple[tuple[str, str], ...]


class Store:
    """The whole content of a metric store in one round."""

    def __init__(self, series: Iterable[Mapping[str, Any]]) -> None:
        self._points: dict[tuple[str, Labels], list[tuple[int, float]]] = {}
        for one in series:
            key = one["metric"], tuple(sorted(one["labels"].items()))
            self._points[key] = [(instant_ns(at), number) for at, number in one["points"]]

    def within(self, metric: str, begin_ns: int, end_ns: int, **labels: str) -> list[float]:
        """Returns the values of a series in a window, both ends included, by time."""
        points = self._points.get((metric, tuple(sorted(labels.items()))), ())
        return [number for at, number in sorted(points) if begin_ns <= at <= end_ns]

    def mean(self, metric: str, begin_ns: int, end_ns: int, **labels: str) -> float | None:
        """Returns their mean."""
        found = self.within(metric, begin_ns, end_ns, **labels)
        return sum(found) / len(found) if found else None

    def last(self, metric: str, begin_ns: int, end_ns: int, **labels: str) -> float | None:
        """Returns the newest of them."""
        found = self.within(metric, begin_ns, end_ns, **labels)
        return found[-1] if found else None
