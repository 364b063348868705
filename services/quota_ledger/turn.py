"""Levels of one depth and one width that are shared at once."""

from collections.abc import Iterator

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
        self._rows: list[int] = []
        self._capacity: list[int] = []
        self._scales: list[bool] = []
        self.floors: NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self.runtimes: NDArray[np.int64] = self.floors
        self._changed: tuple[list[int], list[int]] = ([], [])

    def add(self, siblings: Siblings, resource: str, row: int, capacity: int, *, scales: bool) -> None:
        """One level in one resource takes part."""
        self._siblings.append(siblings)
        self.resources.append(resource)
        self._rows.append(row)
        self._capacity.append(capacity)
        self._scales.append(scales)

    def share(self) -> None:
        """Share all of them, and find out what changed."""
        if not self._rows:
            return
        rows = np.array(self._rows)
        self.floors, self.runtimes = self.pool.shared(rows, self._capacity, self._scales)
        differ = (self.runtimes != self.pool.runtimes[rows]) | (self.floors != self.pool.floors[rows])
        at, column = np.nonzero(differ)
        self._changed = at.tolist(), column.tolist()

    def found(self) -> Iterator[tuple[int, int, Account]]:
        """What changed: index of the row here, column, account."""
        siblings = self._siblings
        for at, column in zip(*self._changed, strict=True):
            yield at, column, siblings[at].accounts[column]

    def keep(self) -> None:
        """These are the shares now; the accounts read them when they are asked."""
        if not self._rows:
            return
        rows = np.array(self._rows)
        self.pool.floors[rows], self.pool.runtimes[rows] = self.floors, self.runtimes
        for at, _, account in self.found():
            account.behind = self._siblings[at]
