"""Recent samples of one metric, for as long as strategies look back (koordlet's metric cache).

Source: spec/node-agent.md 1.3.
"""

from collections import deque

KEPT_NS = 600 * 10**9


class MetricSeries:
    """Samples by time, the newest KEPT_NS of them."""

    __slots__ = ("_kept_ns", "_samples")

    def __init__(self, kept_ns: int = KEPT_NS) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        self._kept_ns = kept_ns

    def add(self, at_ns: int, value: float) -> None:
        """Adds a sample, later than all before."""
        self._samples.append((at_ns, value))
        while self._samples[0][0] < at_ns - self._kept_ns:
            self._samples.popleft()

    def within(self, begin_ns: int) -> list[float]:
        """Returns the values since an instant, by time."""
        found = []
        for at_ns, value in reversed(self._samples):
            if at_ns < begin_ns:
                break
            found.append(value)
        return found[::-1]

    def mean(self, begin_ns: int) -> float | None:
        """Returns their mean; None without any."""
        found = self.within(begin_ns)
        return sum(found) / len(found) if found else None

    def last(self, begin_ns: int) -> float | None:
        """Returns the newest value since an instant."""
        if self._samples and self._samples[-1][0] >= begin_ns:
            return self._samples[-1][1]
        return None
