"""Levels of one depth and one width that are shared at once."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.account import Account
from services.quota_ledger.siblings import Pool, Siblings


class Turn:
    """Some rows of one pool, what each has to share, and what came out.

    Attributes:
        resources: of each row.
        floors, runtimes: int64[rows, width], once shared.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.resources: list[str] = []
        self._siblings: list[Siblings] = []
        self._levels: list[Siblings] = []
        self._starts: list[int] = []
        self._rows: list[int] = []
        self._at: NDArray[np.int64] = np.zeros(0, np.int64)
        self._capacity: list[int] = []
        self._scales: list[bool] = []
        self.floors: NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self.runtimes: NDArray[np.int64] = self.floors
        self._differ: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)

    def add(self, siblings: Siblings, capacity: Mapping[str, int | None], *, scales: bool) -> None:
        """One level takes part, in the resources that `capacity` names; None: the level lacks the resource, so that nothing is scaled."""
        rows, count = siblings.rows, len(self._rows)
        for resource, size in capacity.items():
            if (row := rows.get(resource)) is not None:
                self._rows.append(row)
                self.resources.append(resource)
                self._capacity.append(size or 0)
                self._scales.append(scales and size is not None)
        if added := len(self._rows) - count:
            self._levels.append(siblings)
            self._starts.append(count)
            self._siblings += [siblings] * added

    def share(self) -> None:
        """Share all of them, and find out what changed."""
        if not self._rows:
            return
        self._at = rows = np.array(self._rows)
        self.floors, self.runtimes = self.pool.shared(rows, self._capacity, self._scales)
        self._differ = (self.runtimes != self.pool.runtimes[rows]) | (self.floors != self.pool.floors[rows])

    def found(self) -> Iterator[tuple[int, int, Account]]:
        """What changed: index of the row here, column, account."""
        return self._of(self._differ)

    def parents(self) -> Iterator[tuple[int, int, Account]]:
        """Of what changed, that which has children."""
        return self._of(self._differ & self.pool.parents[self._at]) if self._rows else iter(())

    def keep(self) -> int:
        """These are the shares now; the accounts read them when they are asked. How many accounts changed."""
        if not self._rows:
            return 0
        rows = self._at
        self.pool.floors[rows], self.pool.runtimes[rows] = self.floors, self.runtimes
        # The rows of one level follow each other: an account that changed in several resources counts once.
        changed = np.logical_or.reduceat(self._differ, self._starts)
        for at in np.nonzero(changed.any(axis=1))[0].tolist():
            self._levels[at].version += 1
        return int(changed.sum())

    def _of(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, int, Account]]:
        at, column = np.nonzero(chosen)
        for row, index in zip(at.tolist(), column.tolist(), strict=True):
            yield row, index, self._siblings[row].accounts[index]
