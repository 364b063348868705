"""Minima, weights and demands of a tree's quotas as matrices, so that ten thousand quotas are read at once."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
LARGEST = 2**63 - 1
MINIMA, WEIGHTS, DEMANDS = range(3)


class FairShareInputs:
    """One row a quota, one column a resource, for each kind; 0 for an absent amount, and at most LARGEST."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._free: list[int] = []
        self._rows = 0
        self._sizes: Int64 = np.zeros((3, 16, 2), np.int64)

    def take(self) -> int:
        """Returns a row of zeros."""
        if self._free:
            row = self._free.pop()
            self._sizes[:, row] = 0
            return row
        if self._rows == self._sizes.shape[1]:
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)], axis=1)
        self._rows += 1
        return self._rows - 1

    def release(self, row: int) -> None:
        """Frees a row."""
        self._free.append(row)

    def put(self, kind: int, row: int, amounts: Mapping[str, int]) -> None:
        """Replaces the amounts of one quota."""
        for name in amounts:
            if name not in self._columns:
                self._add(name)
        sizes = self._sizes[kind, row]
        sizes[:] = 0
        for name, size in amounts.items():
            sizes[self._columns[name]] = max(-LARGEST, min(size, LARGEST))

    def read(self, kind: int, rows: NDArray[np.intp], resources: Sequence[str]) -> Int64:
        """Returns the amounts of some rows: int64[rows, resources]."""
        found = np.zeros((len(rows), len(resources)), np.int64)
        sizes = self._sizes[kind]
        for at, name in enumerate(resources):
            if (column := self._columns.get(name)) is not None:
                found[:, at] = sizes[rows, column]
        return found

    def _add(self, resource: str) -> None:
        if len(self._columns) == self._sizes.shape[2]:
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)], axis=2)
        self._columns[resource] = len(self._columns)
