"""One compiled pass over nodes for the fit filter and all score terms of a class of pods."""

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
    """Score terms as the kernels take them.

    Attributes:
        full, terms: of the AllocationTerms; even, left: of the BalanceTerm and the LoadTerm.
    """

    full: Int64
    terms: Int64
    even: tuple[int, int, Int64, Int64]
    left: tuple[int, int, Int64, Int64, Int64, Int64, int, int, Int64, int]


def layout_of(parts: Sequence[tuple[int, ScoreTerm]]) -> Layout:
    """Lays out (weight, term) of each scoring plugin; at most one BalanceTerm and one LoadTerm."""
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


class FusedScoring:
    """The pass of one class; each run reads the present snapshot."""

    def __init__(
        self,
        snapshot: CycleSnapshot,
        fit_term: tuple[int, FitTerm] | None,
        parts: Sequence[tuple[int, ScoreTerm]],
        base: int,
    ) -> None:
        """Lays out the terms.

        Args:
            fit_term: the filter's index in the profile, and its term.
            parts: (weight, term), as `layout_of` takes them.
            base: score of every node besides.
        """
        layout = layout_of(parts)
        self._parts = len(parts)
        self._snapshot = snapshot
        self._base = base
        self._of_nodes: tuple[Any, ...] = (
            snapshot.pods,
            snapshot.table.allowed_pods,
            snapshot.table.allocatable.T,
            snapshot.requested.T,
            snapshot.nonzero_requested.T,
            *((fit_term[0], *fit_term[1]) if fit_term else _NOT_SHORT),
            layout.full,
            layout.terms,
            *layout.even,
            *layout.left,
        )

    def evaluate(self, rows: Rows, by: Int64, result: Int64, total: Int64) -> None:
        """Rejects nodes with insufficient resources, and sums up the scores of the others.

        Args:
            by, result, total: [rows], written to, as in ClassEvaluation; nodes that `by` rejects already are kept so.
        """
        evaluate(*self._snapshot.which(rows), by, result, total, _NO_ARRAYS, self._base, *self._of_nodes)

    def scores(self, rows: Int64) -> Int64:
        """Returns [parts, rows]: the weighted score of each term."""
        count = len(rows)
        each = np.zeros((self._parts, count), np.int64)
        by, result, total = np.full(count, FEASIBLE), np.zeros(count, np.int64), np.empty(count, np.int64)
        evaluate(rows, count, by, result, total, each, self._base, *self._of_nodes)
        return each
