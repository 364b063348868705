"""The children of each parent laid out for sharing: one row a child, sorted by name, one column a resource.

Levels of about equal width lie in one pool of matrices, so that many are shared at once. Each cell knows the column of its own children's
level, so that what moved is followed downwards without a look at any account. What is shared is what `sharing.share` and
`sharing.scaled_minima` say; they are also asked themselves where an amount is too large for the matrices.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

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
"""Runtime of a child that has none yet; column of the children of one that has none."""

_MATRICES = ("asks", "minima", "weights", "floors", "runtimes", "below", "lends", "names")
_NAME = attrgetter("declared.name")
_NOTHING: Mapping[str, int] = {}
_SHIFT = 40  # an address is the number of a pool, shifted so far, and a column


class Pool:
    """Levels of at most `width` children.

    Attributes:
        number: of this pool among all.
        asks, minima, weights, floors, runtimes: int64[width, columns], zeros behind a level's last child.
        below: int64[width, columns], address of the child's own level in that resource; NEVER for none.
        lends: bool[width, columns].
        names: str[width, columns], of the children.
        first: int64[columns], the level's first column, which stands for the level.
        resources, levels: of each column.
    """

    def __init__(self, width: int, number: int) -> None:
        self.width, self.number = width, number
        self._free: list[int] = []
        self._columns = 0
        self.asks, self.minima, self.weights, self.floors, self.runtimes, self.below = (
            np.zeros((width, 16), np.int64) for _ in range(6)
        )
        self.lends = np.ones((width, 16), np.bool_)
        self.names: NDArray[np.object_] = np.zeros((width, 16), np.object_)
        self.first = np.zeros(16, np.int64)
        self.resources: NDArray[np.object_] = np.zeros(16, np.object_)
        self.levels: list[Siblings | None] = []

    def take(self, level: "Siblings", resource: str) -> int:
        """A free column for a level."""
        if self._free:
            column = self._free.pop()
            self.levels[column] = level
        else:
            column, self._columns = self._columns, self._columns + 1
            self.levels.append(level)
            if column == len(self.first):
                for name in _MATRICES:
                    old = getattr(self, name)
                    setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=1))
                self.first = np.concatenate([self.first, np.zeros_like(self.first)])
                self.resources = np.concatenate([self.resources, np.zeros_like(self.resources)])
        self.resources[column] = resource
        return column

    def release(self, column: int) -> None:
        """A column is free again."""
        self._free.append(column)
        self.levels[column] = None

    def shared(self, columns: Int64, capacity: Int64, scales: NDArray[np.bool_]) -> tuple[Int64, Int64]:
        """Floors and runtimes of some levels; changes nothing."""
        found = None
        if len(columns) > batch.FEW:
            asks, minima, weights = (each.take(columns, 1) for each in (self.asks, self.minima, self.weights))
            found = batch.shared(capacity, asks, minima, weights, self.lends.take(columns, 1), scales)
        return found or self._one_by_one(columns, capacity.tolist(), scales.tolist())

    def _one_by_one(self, columns: Int64, capacity: list[int], scales: list[bool]) -> tuple[Int64, Int64]:
        floors, runtimes = (np.zeros((self.width, len(columns)), np.int64) for _ in range(2))
        for at, column in enumerate(columns.tolist()):
            minima = self.minima[:, column].tolist()
            total = sum(minima)
            own = [scaled_min(capacity[at], each, total) for each in minima] if scales[at] else minima
            parts = (self.asks[:, column].tolist(), self.weights[:, column].tolist(), self.lends[:, column].tolist())
            children = [Child(f"{index:09}", *each) for index, each in enumerate(zip(own, *parts, strict=True))]
            floors[:, at] = own
            runtimes[:, at] = share(capacity[at], children)
        return floors, runtimes


class Siblings:
    """All children of one parent, and the resources that they share.

    Attributes:
        accounts: sorted by name; the row of each is its `row`.
        columns: resource -> column of `pool`.
        shared: runtimes and scaled minima as they were when this was made, until they lie in the pool.
        version: another one whenever a share is.
    """

    __slots__ = ("accounts", "columns", "parent", "pool", "shared", "version")

    def __init__(self, parent: Account, accounts: Sequence[Account], resources: Sequence[str], pool: Pool) -> None:
        self.parent, self.pool, self.version = parent, pool, 0
        self.accounts = sorted(accounts, key=_NAME)
        self.columns = {resource: pool.take(self, resource) for resource in resources}
        self.shared = [account.lie_with(self, row) for row, account in enumerate(self.accounts)]

    def ask(self, account: Account) -> None:
        """One child asks for something else."""
        asked = account.asked or {}
        for resource, column in self.columns.items():
            self.pool.asks[account.row, column] = min(asked.get(resource, 0), LARGEST)

    def shares(self, account: Account) -> Iterator[tuple[str, int, int]]:
        """Resource, floor and runtime of one child, as the columns have them."""
        for resource, column in self.columns.items():
            yield resource, int(self.pool.floors[account.row, column]), int(self.pool.runtimes[account.row, column])

    def put(self, account: Account, runtime: Mapping[str, int], floor: Mapping[str, int]) -> None:
        """One child has other shares."""
        for resource, column in self.columns.items():
            if (size := runtime.get(resource)) is not None:
                self.pool.runtimes[account.row, column] = size
            if (size := floor.get(resource)) is not None:
                self.pool.floors[account.row, column] = size
        self.version += 1

    def link(self) -> None:
        """What the parent's runtime reaches: these columns."""
        if (above := self.parent.laid_out) is not None:
            for resource, column in self.columns.items():
                if (cell := above.columns.get(resource)) is not None:
                    above.pool.below[self.parent.row, cell] = self.pool.number << _SHIFT | column

    def release(self) -> None:
        """The layout is no more; who reads its shares from here keeps them."""
        if (above := self.parent.laid_out) is not None:
            for resource in self.columns:
                if (cell := above.columns.get(resource)) is not None:
                    above.pool.below[self.parent.row, cell] = NEVER
        for account in self.accounts:
            account.lie_with(None, 0)
        for column in self.columns.values():
            self.pool.release(column)


class Layout:
    """Where the levels of one tree lie.

    Attributes:
        levels: parent -> its children.
        pools: by number.
    """

    def __init__(self) -> None:
        self.levels: dict[str, Siblings] = {}
        self.pools: list[Pool] = []
        self._of_width: dict[int, Pool] = {}

    def add(self, found: Iterable[tuple[Account, Sequence[Account], Sequence[str]]]) -> None:
        """Lay out levels: parent, children, resources."""
        fresh: dict[int, list[Siblings]] = {}
        for parent, accounts, resources in found:
            pool = self._pool(width_for(len(accounts)))
            level = self.levels[parent.name] = Siblings(parent, accounts, resources, pool)
            fresh.setdefault(pool.number, []).append(level)
        for number, levels in fresh.items():
            _fill(self.pools[number], levels)
        for levels in fresh.values():
            for level in levels:
                level.link()
                for account in level.accounts:
                    if account.children and (own := self.levels.get(account.name)) is not None:
                        own.link()

    def drop(self, name: str) -> None:
        """The level below this parent is laid out anew when it is needed."""
        if (level := self.levels.pop(name, None)) is not None:
            level.release()

    def _pool(self, width: int) -> Pool:
        if (pool := self._of_width.get(width)) is None:
            pool = self._of_width[width] = Pool(width, len(self.pools))
            self.pools.append(pool)
        return pool


def width_for(children: int) -> int:
    """How wide the rows of so many children are: few widths, so that many levels share a pool, and little of it unused."""
    if children <= WIDE:
        return max(NARROWEST, -(-children // NARROWEST) * NARROWEST)
    return 1 << (children - 1).bit_length()


def address(value: Int64) -> tuple[Int64, Int64]:
    """Numbers of pools and columns, of `Pool.below`."""
    return value >> _SHIFT, value & (1 << _SHIFT) - 1


def _fill(pool: Pool, levels: Sequence[Siblings]) -> None:
    """What the accounts of new levels ask for, have and are, in their cells."""
    asks: list[int] = []
    minima: list[int] = []
    weights: list[int] = []
    floors: list[int] = []
    runtimes: list[int] = []
    lends: list[bool] = []
    names: list[str] = []
    columns: list[int] = []
    counts: list[int] = []
    first: list[int] = []
    for level in levels:
        accounts = level.accounts
        declared = [account.declared for account in accounts]
        asked = [account.asked or _NOTHING for account in accounts]
        lending = [account.lends for account in accounts]
        called = [quota.name for quota in declared]
        for resource, column in level.columns.items():
            columns.append(column)
            asks += [each.get(resource, 0) for each in asked]
            minima += [quota.min.get(resource, 0) for quota in declared]
            weights += [quota.weight.get(resource, 0) for quota in declared]
            runtimes += [runtime.get(resource, NEVER) for runtime, _ in level.shared]
            floors += [floor.get(resource, 0) for _, floor in level.shared]
            lends += lending
            names += called
        level.shared = []
        if level.columns:
            first += [columns[-len(level.columns)]] * len(level.columns)
            counts += [len(accounts)] * len(level.columns)
    at = np.array(columns, np.int64)
    if not len(at):
        return
    for each in (pool.asks, pool.minima, pool.weights, pool.floors, pool.runtimes):
        each[:, at] = 0
    pool.below[:, at], pool.lends[:, at], pool.first[at] = NEVER, True, first
    across = np.repeat(at, counts)
    down = np.arange(len(across)) - np.repeat(np.cumsum(counts) - counts, counts)
    for each, values in (
        (pool.asks, asks),
        (pool.minima, minima),
        (pool.weights, weights),
        (pool.floors, floors),
        (pool.runtimes, runtimes),
    ):
        each[down, across] = _bounded(values)
    pool.lends[down, across] = lends
    pool.names[down, across] = names


def _bounded(values: list[int]) -> Int64:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([min(value, LARGEST) for value in values], np.int64)
