"""The nodes that a pass evaluates: some rows of the table, or all of them, which must be fast."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.numba_compile import compiled, inlined

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp] | slice
"""Rows of the table: an array of them, or a slice from 0."""

_NONE: Int64 = np.zeros(0, np.int64)


def selected(rows: Rows, size: int) -> tuple[Int64, int]:
    """Returns rows as kernels take them: an array and its length, or an empty array and the number of rows from 0."""
    return (_NONE, len(range(*rows.indices(size)))) if isinstance(rows, slice) else (rows, len(rows))


TILE = 1024
"""Nodes that a pass evaluates at a time, so that their intermediate values stay in the first-level cache."""


class Tile(NamedTuple):
    """Up to TILE of the selected nodes.

    Attributes:
        rows, length: the selected nodes and their number, as `selected` returns them.
        start: the first of the tile among them.
    """

    rows: Int64
    length: int
    start: int


@compiled("int64[::1](int64[::1], int64[::1], int64, int64)")
def _at(values: Int64, rows: Int64, count: int, start: int) -> Int64:
    stop = min(start + TILE, count)
    return values[rows[start:stop]] if len(rows) == count else values[start:stop]


@inlined
def at(values: Int64, tile: Any) -> Int64:
    """Returns the values of a tile."""
    return _at(values, tile.rows, tile.length, tile.start)
