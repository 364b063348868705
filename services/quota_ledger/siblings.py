"""The children of each parent laid out for sharing: one column a child, sorted by name, one row a resource.

Rows of about equal width lie in one pool of matrices, so that many levels are shared at once. What is shared is what `sharing.share` and
`sharing.scaled_minima` say; they are also asked themselves where an amount is too large for the matrices.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger import batch
from services.quota_ledger.account import Account
from services.quota_ledger.sharing import Child, scaled_min, share

Int64 = NDArray[np.int64]
NARROWEST = 4
WIDE = 32
LARGEST = 2**63 - 1
NEVER = -1
"""Runtime of a child that has none yet."""


class Pool:
    """Rows of at most `width` children.

    Attributes:
        asks, minima, weights, floors, runtimes: int64[rows, width], zeros behind a row's last child.
        lends, parents: bool[rows, width]; parents: whether a child has children.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._free: list[int] = []
        self._rows = 0
        self.asks, self.minima, self.weights, self.floors, self.runtimes = (
            np.zeros((16, width), np.int64) for _ in range(5)
        )
        self.lends, self.parents = np.ones((16, width), np.bool_), np.zeros((16, width), np.bool_)

    def take(self) -> int:
        """A free row, zeroed."""
        if self._free:
            row = self._free.pop()
        else:
            row, self._rows = self._rows, self._rows + 1
            if row == len(self.asks):
                for name in ("asks", "minima", "weights", "floors", "runtimes", "lends", "parents"):
                    old = getattr(self, name)
                    setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        for each in (self.asks, self.minima, self.weights, self.floors, self.runtimes):
            each[row] = 0
        self.lends[row], self.parents[row] = True, False
        return row

    def release(self, row: int) -> None:
        """A row is free again."""
        self._free.append(row)

    def shared(self, rows: Int64, capacity: list[int], scales: list[bool]) -> tuple[Int64, Int64]:
        """Floors and runtimes of some rows; changes nothing."""
        found = None
        if max(map(abs, capacity)) <= batch.LARGEST:
            columns = (self.asks[rows], self.minima[rows], self.weights[rows], self.lends[rows])
            found = batch.shared(np.array(capacity, np.int64), *columns, np.array(scales, np.bool_))
        return found or self._one_by_one(rows, capacity, scales)

    def _one_by_one(self, rows: Int64, capacity: list[int], scales: list[bool]) -> tuple[Int64, Int64]:
        floors, runtimes = (np.zeros((len(rows), self.width), np.int64) for _ in range(2))
        for at, row in enumerate(rows):
            minima = self.minima[row].tolist()
            total = sum(minima)
            own = [scaled_min(capacity[at], each, total) for each in minima] if scales[at] else minima
            columns = zip(
                own, self.asks[row].tolist(), self.weights[row].tolist(), self.lends[row].tolist(), strict=True
            )
            floors[at] = own
            runtimes[at] = share(capacity[at], [Child(f"{index:09}", *each) for index, each in enumerate(columns)])
        return floors, runtimes


def width_for(children: int) -> int:
    """How wide the row of so many children is: few widths, so that many levels share a pool, and little of it unused."""
    if children <= WIDE:
        return max(NARROWEST, -(-children // NARROWEST) * NARROWEST)
    return 1 << (children - 1).bit_length()


class Siblings:
    """All children of one parent, and the resources that they share.

    Attributes:
        accounts: sorted by name.
        rows: resource -> row of `pool`.
        version: another one whenever a share is.
    """

    __slots__ = ("accounts", "column", "pool", "rows", "version")

    def __init__(self, accounts: Sequence[Account], resources: Sequence[str], pools: dict[int, Pool]) -> None:
        self.accounts = sorted(accounts, key=lambda account: account.name)
        self.column = {account.name: index for index, account in enumerate(self.accounts)}
        width = width_for(len(accounts))
        if width not in pools:
            pools[width] = Pool(width)
        self.pool = pool = pools[width]
        self.rows = {resource: pool.take() for resource in resources}
        self.version = 0
        count = len(self.accounts)
        for resource, row in self.rows.items():
            pool.minima[row, :count] = [min(each.declared.min.get(resource, 0), LARGEST) for each in self.accounts]
            pool.weights[row, :count] = [min(each.declared.weight.get(resource, 0), LARGEST) for each in self.accounts]
            pool.asks[row, :count] = [min((each.asked or {}).get(resource, 0), LARGEST) for each in self.accounts]
            pool.lends[row, :count] = [each.lends for each in self.accounts]
            pool.parents[row, :count] = [bool(each.children) for each in self.accounts]
            pool.floors[row, :count] = [each.scaled_min.get(resource, 0) for each in self.accounts]
            pool.runtimes[row, :count] = [each.runtime.get(resource, NEVER) for each in self.accounts]
        for account in self.accounts:
            account.lie_with(self)

    def ask(self, account: Account) -> None:
        """One child asks for something else."""
        index = self.column.get(account.name)
        if index is not None:
            asked = account.asked or {}
            for resource, row in self.rows.items():
                self.pool.asks[row, index] = min(asked.get(resource, 0), LARGEST)

    def take(self, account: Account) -> None:
        """One child has other shares."""
        index = self.column.get(account.name)
        if index is not None:
            for resource, row in self.rows.items():
                self.pool.runtimes[row, index] = account.runtime.get(resource, NEVER)
                self.pool.floors[row, index] = account.scaled_min.get(resource, 0)

    def shares(self, account: Account) -> Iterator[tuple[str, int, int]]:
        """Resource, floor and runtime of one child, as the rows have them."""
        index = self.column[account.name]
        for resource, row in self.rows.items():
            yield resource, int(self.pool.floors[row, index]), int(self.pool.runtimes[row, index])

    def release(self) -> None:
        """The layout is no more; who reads its shares from here keeps them."""
        for account in self.accounts:
            account.lie_with(None)
        for row in self.rows.values():
            self.pool.release(row)
