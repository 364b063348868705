"""The children of each parent laid out for sharing: one row a child, sorted by name, one column a resource.

Levels of about equal width lie in one pool of matrices, so that many are shared at once. Each cell knows the column of its own children's
level, so that what moved is followed downwards without a look at any account. What is shared is what `sharing.share` and
`sharing.scaled_minima` say; they are also asked themselves where an amount is too large for the matrices.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime import fair_share_batch
from services.quota_ledger.runtime.demand_matrix import LARGEST
from services.quota_ledger.runtime.fair_share import Child, scaled_min, share
from services.quota_ledger.tree.quota_info import QuotaInfo

Int64 = NDArray[np.int64]
NEVER = -1
"""Runtime of a child that has none yet; column of the children of one that has none."""

_MATRICES = ("demands", "minima", "weights", "scaled_mins", "runtimes", "below", "lends", "names")
_NAME = attrgetter("name")
_SHIFT = 40  # an address is the number of a pool, shifted so far, and a column


class MatrixPool:
    """Levels of at most `width` children.

    Attributes:
        number: of this pool among all.
        demands, minima, weights, scaled_mins, runtimes: int64[width, columns], zeros behind a level's last child.
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
        self.demands, self.minima, self.weights, self.scaled_mins, self.runtimes, self.below = (
            np.zeros((width, 16), np.int64) for _ in range(6)
        )
        self.lends = np.ones((width, 16), np.bool_)
        self.names: NDArray[np.object_] = np.zeros((width, 16), np.object_)
        self.first = np.zeros(16, np.int64)
        self.resources: NDArray[np.object_] = np.zeros(16, np.object_)
        self.levels: list[SiblingMatrix | None] = []

    def take(self, levels: Sequence["SiblingMatrix"], resources: Sequence[Sequence[str]]) -> None:
        """Free columns for levels, each with its resources."""
        wanted = [(level, resource) for level, each in zip(levels, resources, strict=True) for resource in each]
        columns = [self._free.pop() for _ in range(min(len(self._free), len(wanted)))]
        more = len(wanted) - len(columns)
        columns += range(self._columns, self._columns + more)
        self._columns += more
        self.levels += [None] * more
        while len(self.first) < self._columns:
            self._widen()
        for (level, resource), column in zip(wanted, columns, strict=True):
            self.levels[column] = level
            level.columns[resource] = column
        self.resources[columns] = [resource for _, resource in wanted]

    def _widen(self) -> None:
        for name in _MATRICES:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=1))
        self.first = np.concatenate([self.first, np.zeros_like(self.first)])
        self.resources = np.concatenate([self.resources, np.zeros_like(self.resources)])

    def release(self, column: int) -> None:
        """A column is free again."""
        self._free.append(column)
        self.levels[column] = None

    def shared(self, columns: Int64, capacity: Int64, scales: NDArray[np.bool_]) -> tuple[Int64, Int64]:
        """Floors and runtimes of some levels; changes nothing."""
        found = None
        if len(columns) > fair_share_batch.FEW:
            demands, minima, weights = (each.take(columns, 1) for each in (self.demands, self.minima, self.weights))
            found = fair_share_batch.shared(capacity, demands, minima, weights, self.lends.take(columns, 1), scales)
        return found or self._one_by_one(columns, capacity.tolist(), scales.tolist())

    def _one_by_one(self, columns: Int64, capacity: list[int], scales: list[bool]) -> tuple[Int64, Int64]:
        scaled_mins, runtimes = (np.zeros((self.width, len(columns)), np.int64) for _ in range(2))
        for at, column in enumerate(columns.tolist()):
            minima = self.minima[:, column].tolist()
            total = sum(minima)
            own = [scaled_min(capacity[at], each, total) for each in minima] if scales[at] else minima
            parts = (self.demands[:, column].tolist(), self.weights[:, column].tolist(), self.lends[:, column].tolist())
            children = [Child(f"{index:09}", *each) for index, each in enumerate(zip(own, *parts, strict=True))]
            scaled_mins[:, at] = own
            runtimes[:, at] = share(capacity[at], children)
        return scaled_mins, runtimes


class SiblingMatrix:
    """All children of one parent, and the resources that they share.

    Attributes:
        accounts: sorted by name; the row of each is its `row`.
        columns: resource -> column of `pool`.
        version: another one whenever a share is.
    """

    __slots__ = ("columns", "parent", "pool", "quotas", "version")

    def __init__(self, parent: QuotaInfo, quotas: Sequence[QuotaInfo], pool: MatrixPool) -> None:
        self.parent, self.pool, self.version = parent, pool, 0
        self.quotas = sorted(quotas, key=_NAME)
        self.columns: dict[str, int] = {}
        for row, info in enumerate(self.quotas):
            if info.matrix is not None:
                info.refresh()
            info.matrix, info.row, info.version = self, row, 0

    def set_demand(self, info: QuotaInfo) -> None:
        """One child asks for something else."""
        for resource, column in self.columns.items():
            self.pool.demands[info.row, column] = min(info.demand.get(resource, 0), LARGEST)

    def shares(self, info: QuotaInfo) -> tuple[dict[str, int], dict[str, int]]:
        """Runtime and scaled min of one child: as the columns have them, else as they were."""
        runtime, scaled_min = dict(info.cached_runtime), dict(info.cached_scaled_min)
        runtimes, scaled_mins, row = self.pool.runtimes.item, self.pool.scaled_mins.item, info.row
        for resource, column in self.columns.items():
            runtime[resource] = runtimes(row, column)
            if resource in info.declared.min:
                scaled_min[resource] = scaled_mins(row, column)
        return runtime, scaled_min

    def put(self, info: QuotaInfo, runtime: Mapping[str, int], scaled_min: Mapping[str, int]) -> None:
        """One child has other shares."""
        for resource, column in self.columns.items():
            if (size := runtime.get(resource)) is not None:
                self.pool.runtimes[info.row, column] = size
            if (size := scaled_min.get(resource)) is not None:
                self.pool.scaled_mins[info.row, column] = size
        self.version += 1

    def link(self) -> None:
        """What the parent's runtime reaches: these columns."""
        if (above := self.parent.matrix) is not None:
            for resource, column in self.columns.items():
                if (cell := above.columns.get(resource)) is not None:
                    above.pool.below[self.parent.row, cell] = self.pool.number << _SHIFT | column

    def release(self) -> None:
        """The layout is no more; who reads its shares from here keeps them."""
        if (above := self.parent.matrix) is not None:
            for resource in self.columns:
                if (cell := above.columns.get(resource)) is not None:
                    above.pool.below[self.parent.row, cell] = NEVER
        for info in self.quotas:
            info.refresh()
            info.matrix = None
        for column in self.columns.values():
            self.pool.release(column)


def address(value: Int64) -> tuple[Int64, Int64]:
    """Numbers of pools and columns, of `MatrixPool.below`."""
    return value >> _SHIFT, value & (1 << _SHIFT) - 1
