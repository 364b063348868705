"""When each pod was created and bound, as a client saw it, and the figures that follow."""

import asyncio
import time
from collections.abc import Callable

import msgspec


class Figures(msgspec.Struct, frozen=True):
    """Figures of one run.

    Attributes:
        pods_per_s: pods / (first create sent -> last bound seen).
        latency_p50_s, latency_p99_s: from a pod's created answer to its bound event; nearest rank.
        create_per_s: how fast the API took the pods; no scheduler can be faster.
    """

    pods_per_s: float
    latency_p50_s: float
    latency_p99_s: float
    create_per_s: float = 0.0


class Timeline:
    """The instants of one run, in seconds of a monotonic clock."""

    def __init__(self, pods: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.pods = pods
        self.began_s = 0.0
        self.all_bound = asyncio.Event()
        self._clock = clock
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}

    def begin(self) -> None:
        """The first create is about to be sent."""
        self.began_s = self._clock()

    def created(self, name: str) -> None:
        """The API has answered that it holds the pod."""
        self._created[name] = self._clock()

    def bound(self, name: str) -> None:
        """The pod was seen with a node; only the first sighting counts."""
        if name not in self._bound:
            self._bound[name] = self._clock()
            if len(self._bound) == self.pods:
                self.all_bound.set()

    @property
    def waiting(self) -> list[str]:
        """Pods that were created and not seen bound."""
        return sorted(self._created.keys() - self._bound.keys())

    def figures(self) -> Figures:
        """The figures, once all are bound. A pod that was seen bound before its own answer came counts with 0."""
        latencies = sorted(max(0.0, at - self._created[name]) for name, at in self._bound.items())
        took_s = max(self._bound.values()) - self.began_s
        creating_s = max(self._created.values()) - self.began_s
        return Figures(
            pods_per_s=round(self.pods / took_s, 1),
            latency_p50_s=round(_rank(latencies, 50), 4),
            latency_p99_s=round(_rank(latencies, 99), 4),
            create_per_s=round(self.pods / creating_s, 1),
        )


def _rank(ordered: list[float], percent: int) -> float:
    return ordered[-(-percent * len(ordered) // 100) - 1]
