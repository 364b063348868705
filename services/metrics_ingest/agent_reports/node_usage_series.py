"""One series of a node, cpu and memory over time, with its means and percentiles over windows.

Integers in, integers out: micro-cores and bytes as the agent measured them, milli-cores and bytes as reports hold them,
truncated.

Source: spec/slo-controller.md 1.3; spec/node-agent.md 1.3.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shared.agents.report import Series
from shared.events.metrics import Usage

Int64 = NDArray[np.int64]

MILLION = 1_000_000
"""Nanoseconds in a millisecond."""
MICRO_IN_MILLI = 1_000
PERCENTS = (50, 90, 95, 99)
UNMEASURED = -1

MOST = 8_000
"""Samples of a series that are kept, whatever the window: two hours of seconds. Sums of as many fit 63 bits."""

_STEP = 128


def rank(count: int, percent: int) -> int:
    """Index of a percentile among `count` sorted samples: max(trunc(float32(count) * float32(p)) - 1, 0).

    The product is one of single precision, as upstream's is: 20 samples have their p95 at index 18.
    """
    return max(int(np.float32(count) * np.float32(percent / 100)) - 1, 0)


@lru_cache(maxsize=4_096)
def ranks(count: int) -> list[int]:
    """Indices of PERCENTS among `count` sorted samples."""
    return [rank(count, percent) for percent in PERCENTS]


class NodeUsageSeries:
    """The newest samples of one series, in the order of their time.

    Attributes:
        rows: int64[3, capacity]: instant in milliseconds since the epoch, micro-cores, bytes; UNMEASURED where a node
            measures only one of the two. Columns `begin` to `end` are in use.
    """

    __slots__ = ("begin", "end", "gaps", "rows")

    def __init__(self) -> None:
        self.rows: Int64 = np.empty((3, _STEP), np.int64)
        self.begin = 0
        self.end = 0
        self.gaps = False

    def __len__(self) -> int:
        return self.end - self.begin

    def add(self, series: Series, begins_ns: int) -> None:
        """Adds the samples of a report, late ones at their place in time."""
        count = len(series.offset_ms)
        if not count:
            return
        self._make_room(count)
        rows, at = self.rows, slice(self.end, self.end + count)
        rows[0, at] = series.offset_ms
        rows[0, at] += begins_ns // MILLION
        rows[1, at] = series.cpu or UNMEASURED
        rows[2, at] = series.memory or UNMEASURED
        self.gaps = self.gaps or not series.cpu or not series.memory
        late = len(self) > 0 and bool(rows[0, self.end] < rows[0, self.end - 1])
        self.end += count
        if late:
            used = rows[:, self.begin : self.end]
            used[:] = used[:, np.argsort(used[0], kind="stable")]
        self.begin = max(self.begin, self.end - MOST)

    def drop_before(self, at_ms: int) -> None:
        """Drops samples before an instant."""
        self.begin += int(np.searchsorted(self.rows[0, self.begin : self.end], at_ms))
        if self.begin == self.end:
            self.begin = self.end = 0

    def mean(self, from_ms: int, upto_ms: int) -> Usage:
        """Returns the mean of the samples within [from, upto]."""
        values = self._within(from_ms, upto_ms)
        if self.gaps:
            return Usage(_mean(_measured(values[1]), MICRO_IN_MILLI), _mean(_measured(values[2])))
        count = values.shape[1]
        if not count:
            return Usage()
        cpu, memory = values[1:].sum(axis=1).tolist()
        return Usage(cpu // (count * MICRO_IN_MILLI), memory // count)

    def window(self, upto_ms: int, length_ms: int) -> tuple[Usage, ...]:
        """Returns mean and percentiles of [upto - length, upto], by AGGREGATIONS.

        Empty when the cpu samples span less than half of it.
        """
        values = self._within(upto_ms - length_ms, upto_ms)
        if self.gaps:
            return _with_gaps(values, length_ms)
        count = values.shape[1]
        if not count or 2 * int(values[0, -1] - values[0, 0]) < length_ms:
            return ()
        ordered = np.sort(values[1:])
        cpu, memory = ordered.sum(axis=1).tolist()
        picked = zip(*ordered[:, ranks(count)].tolist(), strict=True)
        mean = Usage(cpu // (count * MICRO_IN_MILLI), memory // count)
        return (mean, *(Usage(cpu // MICRO_IN_MILLI, memory) for cpu, memory in picked))

    def _within(self, from_ms: int, upto_ms: int) -> Int64:
        """Returns the columns of the samples within [from, upto]."""
        low, high = np.searchsorted(self.rows[0, self.begin : self.end], (from_ms, upto_ms + 1))
        return self.rows[:, self.begin + low : self.begin + high]

    def _make_room(self, count: int) -> None:
        room = self.rows.shape[1]
        if self.end + count <= room:
            return
        used = self.rows[:, self.begin : self.end]
        index = (used.shape[1] + count) * 5 // 4
        self.rows = np.empty((3, -(-index // _STEP) * _STEP), np.int64)
        self.begin, self.end = 0, used.shape[1]
        self.rows[:, : self.end] = used


def _with_gaps(values: Int64, length_ms: int) -> tuple[Usage, ...]:
    """Returns `NodeUsageSeries.window` where not every sample has both amounts."""
    at = values[0, values[1] != UNMEASURED]
    if not len(at) or 2 * int(at[-1] - at[0]) < length_ms:
        return ()
    cpu, memory = np.sort(_measured(values[1])), np.sort(_measured(values[2]))
    cpu_at, memory_at = (
        cpu[ranks(len(cpu))].tolist(),
        memory[ranks(len(memory))].tolist() if len(memory) else [None] * 4,
    )
    picked = zip(cpu_at, memory_at, strict=True)
    mean = Usage(_mean(cpu, MICRO_IN_MILLI), _mean(memory))
    return (mean, *(Usage(cpu // MICRO_IN_MILLI, memory) for cpu, memory in picked))


def _measured(values: Int64) -> Int64:
    found: Int64 = values[values != UNMEASURED]
    return found


def _mean(values: Int64, unit: int = 1) -> int | None:
    """Returns the mean in whole units, truncated; None without samples."""
    return int(values.sum()) // (len(values) * unit) if len(values) else None
