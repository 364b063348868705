"""One compiled pass over nodes for the fit filter and all score terms of a class of pods."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.kernel_filter_and_score_terms import AllocationTerm, BalanceTerm, FitTerm, ScoreTerm
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.kernels.argument_and_result_types import Allocation, Balance, Fit, Load, Outcome
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.kernels.fused_fit_and_scores import evaluate
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.state.pod_equivalence_class import PodClass

_NO_NUMBERS: Int64 = np.zeros(0, np.int64)
_NO_ARRAYS: Int64 = np.zeros((0, 0), np.int64)
_NO_FIT = Fit(-1, _NO_NUMBERS, _NO_NUMBERS, 0)
_NO_BALANCE = Balance(0, 0, _NO_NUMBERS, _NO_NUMBERS)
_NO_LOAD = Load(0, 0, _NO_ARRAYS, _NO_ARRAYS, _NO_NUMBERS, _NO_NUMBERS, 0, 1, _NO_NUMBERS, 0)


class Layout(NamedTuple):
    """Score terms as the kernels take them."""

    allocation: Allocation
    balance: Balance
    load: Load


def layout_of(parts: Sequence[tuple[int, ScoreTerm]]) -> Layout:
    """Lays out (weight, term) of each scoring plugin; at most one BalanceTerm and one LoadTerm."""
    terms: list[tuple[int, int, int, int, bool]] = []
    columns: tuple[tuple[int, ...], ...] = ((), (), (), ())
    balance, load = _NO_BALANCE, _NO_LOAD
    for place, (weight, part) in enumerate(parts):
        if isinstance(part, AllocationTerm):
            first = len(columns[0])
            columns = tuple(before + more for before, more in zip(columns, part[:4], strict=True))
            terms.append((place, weight, first, len(columns[0]), part.most))
        elif isinstance(part, BalanceTerm):
            balance = Balance(place, weight, *part)
        else:
            load = Load(place, weight, *part)
    allocation = Allocation(np.array(terms, np.int64).reshape(len(terms), 5), np.array(columns, np.int64))
    return Layout(allocation, balance, load)


class RowScores(NamedTuple):
    """Nodes whose score a plugin computes itself, since its term does not describe them.

    Attributes:
        place, weight: of the plugin's term.
        rows: bool[all rows].
    """

    place: int
    weight: int
    state: PluginCycleState
    pod_class: PodClass
    rows: Bools

    def scores(self, rows: Int64) -> Int64:
        """Returns [rows]: the weighted scores of such nodes."""
        scores = self.state.score(self.pod_class, rows)
        return np.zeros(len(rows), np.int64) if scores is None else scores * self.weight


class FusedScoring:
    """The pass of one class; each run reads the present snapshot."""

    def __init__(
        self,
        snapshot: CycleSnapshot,
        fit_term: tuple[int, FitTerm] | None,
        parts: Sequence[tuple[int, ScoreTerm]],
        base: int,
        row_scores: Sequence[RowScores] = (),
    ) -> None:
        """Lays out the terms.

        Args:
            fit_term: the filter's index in the profile, and its term.
            parts: (weight, term), as `layout_of` takes them.
            base: score of every node besides.
            row_scores: nodes that a term does not describe.
        """
        self._row_scores = row_scores
        self._parts = len(parts)
        self._snapshot = snapshot
        self._base = base
        self._amounts = snapshot.amounts()
        self._fit = Fit(fit_term[0], *fit_term[1]) if fit_term else _NO_FIT
        self._layout = layout_of(parts)

    def evaluate(self, rows: Rows, by: Int64, result: Int64, total: Int64) -> None:
        """Rejects nodes with insufficient resources, and sums up the scores of the others.

        Args:
            by, result, total: [rows], written to, as in ClassEvaluation; nodes that `by` rejects already are kept so.
        """
        which, count = self._snapshot.which(rows) if isinstance(rows, slice) else (rows, len(rows))
        self._run(which, count, Outcome(by, result, total, _NO_ARRAYS))
        for each in self._row_scores:
            places = np.flatnonzero(each.rows[rows] & (by == FEASIBLE))
            if len(places):
                of_plugin = places + rows.start if isinstance(rows, slice) else rows[places]
                total[places] += each.scores(of_plugin) - self._term_scores(of_plugin)[each.place]

    def scores(self, rows: Int64) -> Int64:
        """Returns [parts, rows]: the weighted score of each term's plugin."""
        shares = self._term_scores(rows)
        for each in self._row_scores:
            places = np.flatnonzero(each.rows[rows])
            if len(places):
                shares[each.place, places] = each.scores(rows[places])
        return shares

    def _term_scores(self, rows: Int64) -> Int64:
        count = len(rows)
        shares = np.zeros((self._parts, count), np.int64)
        outcome = Outcome(np.full(count, FEASIBLE), np.zeros(count, np.int64), np.empty(count, np.int64), shares)
        self._run(rows, count, outcome)
        return shares

    def _run(self, rows: Int64, count: int, outcome: Outcome) -> None:
        allocation, balance, load = self._layout
        evaluate(rows, count, outcome, self._base, self._amounts, self._fit, allocation, balance, load)
