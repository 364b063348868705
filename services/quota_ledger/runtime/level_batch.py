"""Levels of one depth and one width, computed at once."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.sibling_matrix import NEVER, MatrixPool, address

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]


class LevelBatch:
    """Some columns of one pool, the capacity of each, and the results.

    Attributes:
        columns: those of one level are adjacent.
        scaled_mins, runtimes: int64[children, columns], down to the last child of the largest level; `_before`: their
            values before.
    """

    def __init__(self, pool: MatrixPool, columns: Int64, capacity: Int64, scales: Bools) -> None:
        self.pool = pool
        first = pool.first[columns]
        order = np.argsort(first, kind="stable")
        first = first[order]
        self.columns = columns[order]
        self._starts = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]]))
        self.scaled_mins, self.runtimes = pool.compute(self.columns, capacity[order], scales[order])
        self._rows = slice(len(self.runtimes))
        self.scaled_mins_before = pool.scaled_mins[self._rows].take(self.columns, 1)
        self.runtimes_before = pool.runtimes[self._rows].take(self.columns, 1)
        min_only = pool.min_only[self.columns]  # their minima are scaled, but the level shares nothing in them
        if min_only.any():
            self.runtimes[:, min_only] = self.runtimes_before[:, min_only]
        self._changed = self.runtimes != self.runtimes_before

    def below(self) -> Iterator[tuple[int, Int64, Int64]]:
        """Yields the levels whose parents' runtimes change: number of the pool, columns, capacities."""
        below = self.pool.below[self._rows].take(self.columns, 1)
        reached = self._changed & (below != NEVER)
        numbers, columns = address(below[reached])
        capacity = self.runtimes[reached]
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            chosen = numbers == number
            yield number, columns[chosen], capacity[chosen]

    def apply(self) -> int:
        """Writes the results into the pool, from where quotas read them; returns the number of quotas that changed."""
        differ = self._changed | (self.scaled_mins != self.scaled_mins_before)
        pool = self.pool
        pool.scaled_mins[self._rows, self.columns] = self.scaled_mins
        pool.runtimes[self._rows, self.columns] = self.runtimes
        changed = np.logical_or.reduceat(
            differ, self._starts, axis=1
        )  # a quota that changes in several resources counts once
        for at in self.columns[self._starts[changed.any(axis=0)]].tolist():
            if (level := pool.levels[at]) is not None:
                level.version += 1
        return int(np.count_nonzero(changed))

    def runtimes_changed(self) -> Iterator[tuple[str, list[str], list[int], list[int]]]:
        """Yields resource, quotas, their runtimes, and the increase of each; one that had none had 0."""
        for resource, names, now, before in self._by_resource(self._changed, self.runtimes, self.runtimes_before):
            yield resource, names, now.tolist(), (now - np.maximum(before, 0)).tolist()

    def scaled_mins_changed(self) -> Iterator[tuple[str, list[str], list[int]]]:
        """Yields resource, quotas, their scaled minima."""
        differ = self.scaled_mins != self.scaled_mins_before
        for resource, names, now, _ in self._by_resource(differ, self.scaled_mins, self.scaled_mins_before):
            yield resource, names, now.tolist()

    def _by_resource(self, chosen: Bools, now: Int64, before: Int64) -> Iterator[tuple[str, list[str], Int64, Int64]]:
        if not chosen.any():
            return
        resources = self.pool.resources[self.columns]
        for resource in sorted(set(resources.tolist())):
            down, across = np.nonzero(chosen & (resources == resource))
            if len(down):
                names = self.pool.names[down, self.columns[across]].tolist()
                yield resource, names, now[down, across], before[down, across]
