"""The assignment of a tree's levels to matrices, and the transfer of the quotas' amounts into them."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.fair_share_inputs import DEMANDS, LARGEST, MINIMA, WEIGHTS, FairShareInputs
from services.quota_ledger.runtime.sibling_matrix import NEVER, MatrixPool, SiblingMatrix
from services.quota_ledger.tree.quota_info import QuotaInfo

Int64 = NDArray[np.int64]
NARROWEST = 4
WIDE = 32


class MatrixLayout:
    """The matrices of one tree.

    Attributes:
        levels: parent -> its children.
        pools: by number.
    """

    def __init__(self, fair_share_inputs: FairShareInputs) -> None:
        self._fair_share_inputs = fair_share_inputs
        self.levels: dict[str, SiblingMatrix] = {}
        self.pools: list[MatrixPool] = []
        self._of_width: dict[int, MatrixPool] = {}

    def add(self, found: Iterable[tuple[QuotaInfo, Sequence[QuotaInfo], Sequence[str]]]) -> None:
        """Assigns columns to levels (parent, children, shared resources) and fills them.

        A min in a resource that the level does not share is scaled, too, so it has a column, although no runtime.
        """
        new: dict[int, list[SiblingMatrix]] = {}
        resources_of: dict[int, list[dict[str, bool]]] = {}
        for parent, quotas, resources in found:
            pool = self._pool(width_for(len(quotas)))
            level = self.levels[parent.name] = SiblingMatrix(parent, quotas, pool)
            new.setdefault(pool.number, []).append(level)
            unshared = sorted(set().union(*(info.declared.min for info in quotas)).difference(resources))
            columns = dict.fromkeys(resources, True) | dict.fromkeys(unshared, False)
            resources_of.setdefault(pool.number, []).append(columns)
        for number, levels in new.items():
            self.pools[number].take(levels, resources_of[number])
            _fill(self.pools[number], levels, self._fair_share_inputs)
        made = [level for levels in new.values() for level in levels]
        for level in made:
            level.link()
        if len(made) < len(self.levels):  # some levels below existed before their parent's: link them again
            for level in made:
                for info in level.quotas:
                    if info.children and (own := self.levels.get(info.name)) is not None:
                        own.link()

    def drop(self, name: str) -> None:
        """Frees the level below a parent; the next computation builds it again."""
        if (level := self.levels.pop(name, None)) is not None:
            level.release()

    def _pool(self, width: int) -> MatrixPool:
        if (pool := self._of_width.get(width)) is None:
            pool = self._of_width[width] = MatrixPool(width, len(self.pools))
            self.pools.append(pool)
        return pool


def width_for(children: int) -> int:
    """Returns the rows for a number of children: few different widths, so that many levels share a pool."""
    if children <= WIDE:
        return max(NARROWEST, -(-children // NARROWEST) * NARROWEST)
    return 1 << (children - 1).bit_length()


def _fill(pool: MatrixPool, levels: Sequence[SiblingMatrix], fair_share_inputs: FairShareInputs) -> None:
    """Fills the cells of new levels."""
    same: dict[tuple[str, ...], list[SiblingMatrix]] = {}
    for level in levels:
        same.setdefault(tuple(level.columns), []).append(level)
    for resources, some in same.items():
        if resources:
            _fill_alike(pool, some, resources, fair_share_inputs)


def _fill_alike(
    pool: MatrixPool, levels: Sequence[SiblingMatrix], resources: tuple[str, ...], fair_share_inputs: FairShareInputs
) -> None:
    """Fills levels with the same resources; reads each quota few times, since quotas do not fit into a CPU cache."""
    columns = np.array([list(level.columns.values()) for level in levels])
    for each in (pool.demands, pool.minima, pool.weights, pool.scaled_mins, pool.runtimes):
        each[:, columns] = 0
    pool.below[:, columns], pool.lends[:, columns], pool.first[columns] = NEVER, True, columns[:, :1]
    quotas = [info for level in levels for info in level.quotas]
    counts = np.array([len(level.quotas) for level in levels])
    rows = np.arange(len(quotas)) - np.repeat(np.cumsum(counts) - counts, counts)
    cells = rows[:, None], np.repeat(columns, counts, axis=0)
    matrix_rows = np.fromiter((info.demand_row for info in quotas), np.intp, len(quotas))
    minima = fair_share_inputs.read(MINIMA, matrix_rows, resources)
    is_new = all(info.is_new for info in quotas)
    pool.demands[cells] = fair_share_inputs.read(DEMANDS, matrix_rows, resources)
    pool.weights[cells] = fair_share_inputs.read(WEIGHTS, matrix_rows, resources)
    pool.minima[cells] = minima
    pool.scaled_mins[cells] = minima if is_new else _cached([info.cached_scaled_min for info in quotas], resources, 0)
    pool.runtimes[cells] = NEVER if is_new else _cached([info.cached_runtime for info in quotas], resources, NEVER)
    pool.lends[cells] = np.array([info.lends for info in quotas])[:, None]
    names = np.empty(len(quotas), np.object_)
    names[:] = [info.name for info in quotas]
    pool.names[cells] = names[:, None]


def _cached(shares: Sequence[Mapping[str, int]], resources: tuple[str, ...], absent: int) -> Int64:
    """Returns int64[quotas, resources] of the last read amounts, at most LARGEST."""
    sizes = [min(each.get(name, absent), LARGEST) for each in shares for name in resources]
    return np.array(sizes, np.int64).reshape(len(shares), len(resources))
