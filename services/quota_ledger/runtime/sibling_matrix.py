"""The children of each parent in matrices: one row a child, sorted by name, one column a resource.

Levels of about equal width lie in one pool of matrices, so that many are computed at once. Each cell has the address
of the child's own level, so that changes are followed downwards without visiting a quota. The results equal
`fair_share.share` and `fair_share.scaled_minima`, which compute the levels whose amounts are too large for the
matrices.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime import fair_share_batch
from services.quota_ledger.runtime.fair_share import Child, scaled_min, share
from services.quota_ledger.runtime.fair_share_batch import Levels
from services.quota_ledger.runtime.fair_share_inputs import LARGEST
from services.quota_ledger.tree.quota_info import QuotaInfo

Int64 = NDArray[np.int64]
NEVER = -1
"""Runtime of a child that has none yet; address of the level of a child without children."""

_MATRICES = ("demands", "minima", "weights", "scaled_mins", "runtimes", "below", "lends", "names")
_NAME = attrgetter("name")
_SHIFT = 40  # an address is the number of a pool, shifted left by this, plus a column


class MatrixPool:
    """Levels of at most `width` children.

    Attributes:
        number: of this pool among all.
        demands, minima, weights, scaled_mins, runtimes: int64[width, columns], zeros below a level's last child.
        below: int64[width, columns], address of the child's own level in that resource; NEVER without one.
        lends: bool[width, columns].
        min_only: bool[columns], whether the level scales minima in the resource without sharing it: no runtimes.
        names: str[width, columns], of the children.
        first: int64[columns], the level's first column, which identifies the level.
        resources, levels: of each column.
    """

    def __init__(self, width: int, number: int) -> None:
        self.width, self.number = width, number
        self._free: list[int] = []
        self._columns = 0
        first_columns = max(2, min(16, 4096 // width))  # few wide levels exist, and narrow rows are read faster
        shape = (width, first_columns)
        self.demands, self.minima, self.weights, self.scaled_mins, self.runtimes, self.below = (
            np.zeros(shape, np.int64) for _ in range(6)
        )
        self.lends = np.ones(shape, np.bool_)
        self.names: NDArray[np.object_] = np.zeros(shape, np.object_)
        self.first = np.zeros(first_columns, np.int64)
        self.min_only = np.zeros(first_columns, np.bool_)
        self.resources: NDArray[np.object_] = np.zeros(first_columns, np.object_)
        self.levels: list[SiblingMatrix | None] = []

    def take(self, levels: Sequence["SiblingMatrix"], resources: Sequence[Mapping[str, bool]]) -> None:
        """Assigns free columns to levels, each with its resources and whether it shares them."""
        needed = [(level, resource) for level, each in zip(levels, resources, strict=True) for resource in each]
        columns = [self._free.pop() for _ in range(min(len(self._free), len(needed)))]
        more = len(needed) - len(columns)
        columns += range(self._columns, self._columns + more)
        self._columns += more
        self.levels += [None] * more
        while len(self.first) < self._columns:
            self._widen()
        for (level, resource), column in zip(needed, columns, strict=True):
            self.levels[column] = level
            level.columns[resource] = column
        self.resources[columns] = [resource for _, resource in needed]
        self.min_only[columns] = [not is_shared for each in resources for is_shared in each.values()]

    def _widen(self) -> None:
        for name in _MATRICES:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=1))
        self.first = np.concatenate([self.first, np.zeros_like(self.first)])
        self.min_only = np.concatenate([self.min_only, np.zeros_like(self.min_only)])
        self.resources = np.concatenate([self.resources, np.zeros_like(self.resources)])

    def release(self, column: int) -> None:
        """Frees a column."""
        self._free.append(column)
        self.levels[column] = None

    def compute(self, columns: Int64, capacity: Int64, scales: NDArray[np.bool_]) -> tuple[Int64, Int64]:
        """Computes scaled minima and runtimes of some levels, down to the last child; changes nothing."""
        height = max(len(level.quotas) for column in columns.tolist() if (level := self.levels[column]) is not None)
        demands, minima, weights = (
            each[:height].take(columns, 1) for each in (self.demands, self.minima, self.weights)
        )
        lends = self.lends[:height].take(columns, 1)
        if height * len(columns) <= fair_share_batch.FEW:
            return _compute_each(Levels(capacity, demands, minima, weights, lends, scales))
        if height > len(columns):  # sums over children, read in their order in memory, take a third of the time
            demands, minima, weights = (np.asfortranarray(each) for each in (demands, minima, weights))
        levels = Levels(capacity, demands, minima, weights, lends, scales)
        exact = fair_share_batch.fits(levels)
        if exact.all():
            return fair_share_batch.compute(levels)
        scaled_mins, runtimes = np.empty_like(demands), np.empty_like(demands)
        scaled_mins[:, exact], runtimes[:, exact] = fair_share_batch.compute(levels.some(exact))
        scaled_mins[:, ~exact], runtimes[:, ~exact] = _compute_each(levels.some(~exact))
        return scaled_mins, runtimes


def _compute_each(levels: Levels) -> tuple[Int64, Int64]:
    """Computes each level alone, whatever its amounts."""
    scaled_mins, runtimes = np.zeros_like(levels.minima), np.zeros_like(levels.minima)
    names = [f"{index:09}" for index in range(len(scaled_mins))]
    for at, (capacity, scales) in enumerate(zip(levels.capacity.tolist(), levels.scales.tolist(), strict=True)):
        demands, minima, weights, lends = (each[:, at].tolist() for each in levels[1:5])
        total = sum(minima)
        own = [scaled_min(capacity, each, total) for each in minima] if scales else minima
        scaled_mins[:, at] = own
        runtimes[:, at] = share(capacity, list(map(Child, names, own, demands, weights, lends)))
    return scaled_mins, runtimes


class SiblingMatrix:
    """The children of one parent and their columns.

    Attributes:
        quotas: sorted by name; `row` of each is its row.
        columns: resource -> column of `pool`.
        version: increases whenever a runtime or a scaled min changes.
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
        """Writes the demand of one child."""
        for resource, column in self.columns.items():
            self.pool.demands[info.row, column] = min(info.demand.get(resource, 0), LARGEST)

    def read(self, info: QuotaInfo) -> tuple[dict[str, int], dict[str, int]]:
        """Returns runtime and scaled min of one child: of the columns, and of resources without them as they were."""
        runtime, scaled_min = dict(info.cached_runtime), dict(info.cached_scaled_min)
        runtimes, scaled_mins, row = self.pool.runtimes.item, self.pool.scaled_mins.item, info.row
        for resource, column in self.columns.items():
            if (size := runtimes(row, column)) != NEVER:
                runtime[resource] = size
            if resource in info.declared.min:
                scaled_min[resource] = scaled_mins(row, column)
        return runtime, scaled_min

    def write(self, info: QuotaInfo, runtime: Mapping[str, int], scaled_min: Mapping[str, int]) -> None:
        """Writes runtime and scaled min of one child."""
        for resource, column in self.columns.items():
            if (size := runtime.get(resource)) is not None:
                self.pool.runtimes[info.row, column] = size
            if (size := scaled_min.get(resource)) is not None:
                self.pool.scaled_mins[info.row, column] = size
        self.version += 1

    def link(self) -> None:
        """Writes the addresses of these columns into the parent's cells."""
        if (above := self.parent.matrix) is not None:
            for resource, column in self.columns.items():
                if (cell := above.columns.get(resource)) is not None:
                    above.pool.below[self.parent.row, cell] = self.pool.number << _SHIFT | column

    def release(self) -> None:
        """Frees all columns; each child keeps its newest runtime."""
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
    """Splits addresses of `MatrixPool.below` into numbers of pools and columns."""
    return value >> _SHIFT, value & (1 << _SHIFT) - 1
