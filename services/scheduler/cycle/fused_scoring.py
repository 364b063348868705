"""One compiled pass over nodes for all that several plugins say of a class of pods by arithmetic alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.framework.score_terms import AllocationTerm, BalanceTerm, FitTerm, LoadTerm, ScoreTerm
from services.scheduler.kernels.fused import evaluate
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.tiles import Int64, Rows

_NO_NUMBERS: Int64 = np.zeros(0, np.int64)
_NO_ARRAYS: Int64 = np.zeros((0, 0), np.int64)
_NOT_EVEN = BalanceTerm(_NO_NUMBERS, _NO_NUMBERS)
_NOT_LEFT = LoadTerm(_NO_ARRAYS, _NO_ARRAYS, _NO_NUMBERS, _NO_NUMBERS, 0, 1, _NO_NUMBERS, 0)
_NOT_SHORT = (-1, _NO_NUMBERS, _NO_NUMBERS, 0)


class Layout(NamedTuple):
    """Parts as the compiled passes take them.

    Attributes:
        full, terms: of the Fullness among them; even, left: of the Evenness and the Left.
    """

    full: Int64
    terms: Int64
    even: tuple[int, int, Int64, Int64]
    left: tuple[int, int, Int64, Int64, Int64, Int64, int, int, Int64, int]


def lay_out(parts: Sequence[tuple[int, ScoreTerm]]) -> Layout:
    """(weight, what is scored) of each part; at most one Evenness and one Left."""
    full: list[tuple[int, int, int, int, bool]] = []
    terms: tuple[tuple[int, ...], ...] = ((), (), (), ())
    even, left = (0, 0, *_NOT_EVEN[:]), (0, 0, *_NOT_LEFT[:])
    for place, (weight, part) in enumerate(parts):
        if isinstance(part, AllocationTerm):
            first = len(terms[0])
            terms = tuple(before + more for before, more in zip(terms, part[:4], strict=True))
            full.append((place, weight, first, len(terms[0]), part.most))
        elif isinstance(part, BalanceTerm):
            even = (place, weight, *part[:])
        else:
            left = (place, weight, *part[:])
    return Layout(np.array(full, np.int64).reshape(len(full), 5), np.array(terms, np.int64), even, left)


class Pass:
    """One class's pass: it reads the room as it is whenever it is run."""

    def __init__(
        self,
        snapshot: CycleSnapshot,
        shortage: tuple[int, FitTerm] | None,
        parts: Sequence[tuple[int, ScoreTerm]],
        base: int,
    ) -> None:
        """Take what is to be worked out.

        Args:
            shortage: the filter's number among the profile's, and what it asks.
            parts: as `lay_out` takes them.
            base: what every node scores besides.
        """
        layout = lay_out(parts)
        self._parts = len(parts)
        self._snapshot = snapshot
        self._base = base
        self._of_nodes: tuple[Any, ...] = (
            snapshot.pods,
            snapshot.table.allowed_pods,
            snapshot.table.allocatable.T,
            snapshot.requested.T,
            snapshot.nonzero_requested.T,
            *((shortage[0], *shortage[1]) if shortage else _NOT_SHORT),
            layout.full,
            layout.terms,
            *layout.even,
            *layout.left,
        )

    def evaluate(self, rows: Rows, by: Int64, result: Int64, total: Int64) -> None:
        """Note the nodes that are short, and sum up the scores.

        Args:
            by, result, total: [rows], written to, as in Judge; `by` says who has been refused before.
        """
        evaluate(*self._snapshot.which(rows), by, result, total, _NO_ARRAYS, self._base, *self._of_nodes)

    def scores(self, rows: Int64) -> Int64:
        """[parts, rows]: the weighted scores one by one."""
        count = len(rows)
        each = np.zeros((self._parts, count), np.int64)
        by, result, total = np.full(count, FEASIBLE), np.zeros(count, np.int64), np.empty(count, np.int64)
        evaluate(rows, count, by, result, total, each, self._base, *self._of_nodes)
        return each
