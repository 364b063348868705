"""Which nodes a pass looks at: rows of the table, or all of them, which is the case that has to be fast."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.compiled import compiled

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp] | slice
"""Rows of the table: an array of them, or a slice from 0."""

_NONE: Int64 = np.zeros(0, np.int64)


def selected(rows: Rows, size: int) -> tuple[Int64, int]:
    """The rows as compiled passes take them: an array and its length, or an empty one and how many from 0."""
    return (_NONE, len(range(*rows.indices(size)))) if isinstance(rows, slice) else (rows, len(rows))


TILE = 1024
"""Nodes that a pass works on at a time, so that what it notes of them stays in the processor's first cache."""


@compiled("int64[::1](int64[::1], int64[::1], int64, int64)")
def at(values: Int64, rows: Int64, count: int, start: int) -> Int64:
    """The values of a tile of the selected rows, from the `start`-th of `count` on: up to TILE of them."""
    stop = min(start + TILE, count)
    return values[rows[start:stop]] if len(rows) == count else values[start:stop]
