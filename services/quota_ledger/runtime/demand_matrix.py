"""What the quotas of a tree declare and ask for, as matrices beside the accounts: ten thousand of them are read without a look at any."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
LARGEST = 2**63 - 1
MINIMA, WEIGHTS, DEMANDS = range(3)


class DemandMatrix:
    """One line a quota, one column a resource, of each kind; 0 where nothing is said. What is too large stands as the largest."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._free: list[int] = []
        self._lines = 0
        self._sizes: Int64 = np.zeros((3, 16, 2), np.int64)

    def take(self) -> int:
        """A line of zeros."""
        if self._free:
            line = self._free.pop()
            self._sizes[:, line] = 0
            return line
        if self._lines == self._sizes.shape[1]:
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)], axis=1)
        self._lines += 1
        return self._lines - 1

    def release(self, line: int) -> None:
        """A line is free again."""
        self._free.append(line)

    def put(self, kind: int, line: int, amounts: Mapping[str, int]) -> None:
        """What one quota says, in place of what it said."""
        for name in amounts:
            if name not in self._columns:
                self._add(name)
        sizes = self._sizes[kind, line]
        sizes[:] = 0
        for name, size in amounts.items():
            sizes[self._columns[name]] = max(-LARGEST, min(size, LARGEST))

    def read(self, kind: int, lines: NDArray[np.intp], resources: Sequence[str]) -> Int64:
        """[lines, resources]."""
        found = np.zeros((len(lines), len(resources)), np.int64)
        sizes = self._sizes[kind]
        for at, name in enumerate(resources):
            if (column := self._columns.get(name)) is not None:
                found[:, at] = sizes[lines, column]
        return found

    def _add(self, resource: str) -> None:
        if len(self._columns) == self._sizes.shape[2]:
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)], axis=2)
        self._columns[resource] = len(self._columns)
