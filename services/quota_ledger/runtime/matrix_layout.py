"""Where the levels of one tree lie, and how the accounts' numbers come there: many levels at once, each account looked at few times."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.demand_matrix import DEMANDS, LARGEST, MINIMA, WEIGHTS, DemandMatrix
from services.quota_ledger.runtime.sibling_matrix import NEVER, MatrixPool, SiblingMatrix
from services.quota_ledger.tree.quota_info import QuotaInfo

Int64 = NDArray[np.int64]
NARROWEST = 4
WIDE = 32


class MatrixLayout:
    """Where the levels of one tree lie.

    Attributes:
        levels: parent -> its children.
        pools: by number.
    """

    def __init__(self, demand_matrix: DemandMatrix) -> None:
        self._demand_matrix = demand_matrix
        self.levels: dict[str, SiblingMatrix] = {}
        self.pools: list[MatrixPool] = []
        self._of_width: dict[int, MatrixPool] = {}

    def add(self, found: Iterable[tuple[QuotaInfo, Sequence[QuotaInfo], Sequence[str]]]) -> None:
        """Lay out levels: parent, children, resources."""
        fresh: dict[int, list[SiblingMatrix]] = {}
        shared: dict[int, list[Sequence[str]]] = {}
        for parent, quotas, resources in found:
            pool = self._pool(width_for(len(quotas)))
            level = self.levels[parent.name] = SiblingMatrix(parent, quotas, pool)
            fresh.setdefault(pool.number, []).append(level)
            shared.setdefault(pool.number, []).append(resources)
        for number, levels in fresh.items():
            self.pools[number].take(levels, shared[number])
            _fill(self.pools[number], levels, self._demand_matrix)
        made = [level for levels in fresh.values() for level in levels]
        for level in made:
            level.link()
        if len(made) < len(self.levels):  # some below are older than their parent's
            for level in made:
                for info in level.quotas:
                    if info.children and (own := self.levels.get(info.name)) is not None:
                        own.link()

    def drop(self, name: str) -> None:
        """The level below this parent is laid out anew when it is needed."""
        if (level := self.levels.pop(name, None)) is not None:
            level.release()

    def _pool(self, width: int) -> MatrixPool:
        if (pool := self._of_width.get(width)) is None:
            pool = self._of_width[width] = MatrixPool(width, len(self.pools))
            self.pools.append(pool)
        return pool


def width_for(children: int) -> int:
    """How wide the rows of so many children are: few widths, so that many levels share a pool, and little of it unused."""
    if children <= WIDE:
        return max(NARROWEST, -(-children // NARROWEST) * NARROWEST)
    return 1 << (children - 1).bit_length()


def _fill(pool: MatrixPool, levels: Sequence[SiblingMatrix], demand_matrix: DemandMatrix) -> None:
    """What the accounts of new levels ask for, have and are, in their cells."""
    alike: dict[tuple[str, ...], list[SiblingMatrix]] = {}
    for level in levels:
        alike.setdefault(tuple(level.columns), []).append(level)
    for resources, some in alike.items():
        if resources:
            _fill_alike(pool, some, resources, demand_matrix)


def _fill_alike(
    pool: MatrixPool, levels: Sequence[SiblingMatrix], resources: tuple[str, ...], demand_matrix: DemandMatrix
) -> None:
    """The same for levels that share the same resources. Accounts are looked at as little as can be: they do not fit a cache."""
    columns = np.array([list(level.columns.values()) for level in levels])
    for each in (pool.demands, pool.minima, pool.weights, pool.scaled_mins, pool.runtimes):
        each[:, columns] = 0
    pool.below[:, columns], pool.lends[:, columns], pool.first[columns] = NEVER, True, columns[:, :1]
    quotas = [info for level in levels for info in level.quotas]
    counts = np.array([len(level.quotas) for level in levels])
    rows = np.arange(len(quotas)) - np.repeat(np.cumsum(counts) - counts, counts)
    cells = rows[:, None], np.repeat(columns, counts, axis=0)
    lines = np.fromiter((info.demand_row for info in quotas), np.intp, len(quotas))
    minima = demand_matrix.read(MINIMA, lines, resources)
    is_new = all(info.is_new for info in quotas)
    pool.demands[cells] = demand_matrix.read(DEMANDS, lines, resources)
    pool.weights[cells] = demand_matrix.read(WEIGHTS, lines, resources)
    pool.minima[cells] = minima
    pool.scaled_mins[cells] = minima if is_new else _kept([info.cached_scaled_min for info in quotas], resources, 0)
    pool.runtimes[cells] = NEVER if is_new else _kept([info.cached_runtime for info in quotas], resources, NEVER)
    pool.lends[cells] = np.array([info.lends for info in quotas])[:, None]
    names = np.empty(len(quotas), np.object_)
    names[:] = [info.name for info in quotas]
    pool.names[cells] = names[:, None]


def _kept(shares: Sequence[Mapping[str, int]], resources: tuple[str, ...], absent: int) -> Int64:
    """[accounts, resources] of shares as they were last read; what is too large for the matrices as the largest that they hold."""
    sizes = [min(each.get(name, absent), LARGEST) for each in shares for name in resources]
    return np.array(sizes, np.int64).reshape(len(shares), len(resources))
