"""The arrays over all nodes that filter and score read. One column per node, so that every operation runs along nodes.

Source: spec/scheduler-core.md 3.5, 3.6, 7.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FILTER, SCORE, PROD = range(3)
"""The loads of a node: for the filter, for the score, and the usage of prod pods."""

ANY_POD, PROD_POD = range(2)
"""Pods to which limits apply."""

FOREVER: Final = 2**63 - 1
NEVER: Final = -(2**63)
_HUGE: Final = 2**62


class LoadArrays:
    """Loads and limits of the nodes, by row.

    Attributes:
        loads: int64[3, resources, rows]: measured usage plus the amounts that assigned pods add, as FILTER, SCORE,
            PROD.
        allocatable: int64[resources, rows].
        divisor: int64[resources, rows]: allocatable, or a huge number where it is 0, so that the share becomes 0.
        limits: float64[2, resources, rows]: percent of allocatable from which on a pod is rejected; inf: unchecked.
        expires_ns: int64[2, rows]: time from which on a report is expired; FOREVER where none is needed.
        scored_until_ns: int64[rows]: time from which on a node has no score.
        prod_mode: bool[rows]: prod pods are compared with the usage of prod pods.
        windowed: bool[rows]: the filter uses a percentile over a window.
        limited: bool[2, rows]: a limit applies where the node has the resource.
    """

    def __init__(self, resources: int) -> None:
        self.rows = 0
        self.loads = np.zeros((3, resources, 0), np.int64)
        self.allocatable = np.zeros((resources, 0), np.int64)
        self.divisor = np.zeros((resources, 0), np.int64)
        self.limits = np.zeros((2, resources, 0), np.float64)
        self.expires_ns = np.zeros((2, 0), np.int64)
        self.scored_until_ns = np.zeros(0, np.int64)
        self.prod_mode = np.zeros(0, np.bool_)
        self.windowed = np.zeros(0, np.bool_)
        self.limited = np.zeros((2, 0), np.bool_)

    def grow(self, rows: int) -> None:
        """Grows the arrays to at least so many rows; a new row passes every filter and scores 0."""
        if rows <= self.rows:
            return
        extra = max(rows, 2 * self.rows, 16) - self.rows
        self.loads = _append(self.loads, extra, 0)
        self.allocatable = _append(self.allocatable, extra, 0)
        self.divisor = _append(self.divisor, extra, _HUGE)
        self.limits = _append(self.limits, extra, np.inf)
        self.expires_ns = _append(self.expires_ns, extra, FOREVER)
        self.scored_until_ns = _append(self.scored_until_ns, extra, NEVER)
        self.prod_mode = _append(self.prod_mode, extra, value=False)
        self.windowed = _append(self.windowed, extra, value=False)
        self.limited = _append(self.limited, extra, value=False)
        self.rows += extra

    def set_allocatable(self, row: int, amounts: Sequence[int]) -> None:
        """Sets the amounts that usage on a node is compared with."""
        self.allocatable[:, row] = amounts
        self.divisor[:, row] = [size or _HUGE for size in amounts]

    def set_limits(self, row: int, any_pod: Sequence[int], prod_pod: Sequence[int]) -> None:
        """Sets the shares of allocatable from which on a pod is rejected: goround(share) > percent, as share >= limit.

        A percent of 0 and an allocatable of 0 leave the resource unchecked.
        """
        sizes = self.allocatable[:, row].tolist()
        limits = _limits(any_pod, sizes)
        self.limits[:, :, row] = (limits, limits if prod_pod == any_pod else _limits(prod_pod, sizes))
        self.limited[:, row] = any(any_pod), any(prod_pod)

    def with_own_capacity(self) -> "LoadArrays":
        """Returns the same arrays, but copies of those that depend on allocatable."""
        own = copy(self)
        own.allocatable, own.divisor, own.limits = self.allocatable.copy(), self.divisor.copy(), self.limits.copy()
        own.limited = self.limited.copy()
        return own

    def capacity(self, row: int) -> "RowCapacity":
        """Returns copies of a row's values that depend on allocatable."""
        return RowCapacity(
            self.allocatable[:, row].copy(), self.divisor[:, row].copy(), self.limits[:, :, row].copy(), row
        )

    def restore(self, capacity: "RowCapacity") -> None:
        """Sets a row's values to those of `capacity`."""
        row = capacity.row
        self.allocatable[:, row], self.divisor[:, row], self.limits[:, :, row] = capacity[:3]


class RowCapacity(NamedTuple):
    """The values of one row that depend on allocatable."""

    allocatable: NDArray[np.int64]
    divisor: NDArray[np.int64]
    limits: NDArray[np.float64]
    row: int


def _limits(percents: Sequence[int], sizes: Sequence[int]) -> list[float]:
    return [
        rejected_from(percent) if percent and size else np.inf for percent, size in zip(percents, sizes, strict=True)
    ]


def rejected_from(percent: int) -> float:
    """The smallest share, in percent, that is rounded to more than `percent`, halves being rounded away from zero."""
    half = percent + 0.5
    return half if percent >= 0 else float(np.nextafter(half, np.inf))


def int64(amounts: Sequence[int] | Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The amounts as an array; one beyond int64 counts as the nearest int64, because a fold never fails."""
    try:
        return np.array(amounts, np.int64)
    except OverflowError:
        clipped: NDArray[np.object_] = np.clip(np.array(amounts, object), NEVER, FOREVER)
        return clipped.astype(np.int64)


def _append(array: NDArray[Any], extra: int, value: float) -> NDArray[Any]:
    return np.concatenate([array, np.full((*array.shape[:-1], extra), value, array.dtype)], axis=-1)
