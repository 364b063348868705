"""Filter results and scores of all nodes for one class of equal pods, within one cycle.

The class is evaluated once over all nodes; after each step of the cycle only the rows that it changed are evaluated
again. The feasible nodes and totals are those of evaluating all nodes for every pod: filters and scores of a node
depend on that node alone. The exceptions are computed again when they change: the highest raw score, by which some
plugins normalise, and the results of cross-node plugins. A node that stays rejected keeps the reason of its last
evaluation, although a placement may have added one in front of it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cycle.active_plugins import ActivePlugins, Filtering, apply_filters
from services.scheduler.cycle.fused_scoring import FusedScoring, RowScores
from services.scheduler.cycle.look_ahead_with_one_more_pod import PredictedEvaluation, predict_evaluation
from services.scheduler.cycle.rejection_counts import BEST, rejections
from services.scheduler.cycle.rows_changed_by_this_cycle import RowChanges
from services.scheduler.framework.plugin_base import Plugin, normalized
from services.scheduler.framework.plugin_extension_points import SparseScores, on_all_rows
from services.scheduler.framework.plugin_spec import Normalize
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.merge_and_select_nodes import (
    AS_IT_IS,
    DOWN,
    FEASIBLE,
    NO_NODE,
    UP,
    add,
    best_rows,
    close,
    first_refusals,
    merged,
    note_refusals,
    occurrences,
    overlay,
    run,
)
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events.scheduling import Candidate, ClassEvaluated, Rejections

_HOW = {Normalize.NONE: AS_IT_IS, Normalize.UP: UP, Normalize.DOWN: DOWN}


class ClassEvaluation:
    """Filter results and totals of all rows for one class.

    Attributes:
        by: int64[rows]: index of the filter that rejects the node, FEASIBLE, or NO_NODE where the row is free.
        result: int64[rows]: the result of that filter.
        reserves: a plugin may reserve resources below the node for pods of the class.
        total: int64[rows]: sum of weighted scores of feasible nodes, -1 elsewhere.
    """

    def __init__(
        self, active: ActivePlugins, table: NodeTable, pod_class: PodClass, changes: RowChanges | None = None
    ) -> None:
        """Evaluates all nodes in their present state.

        Args:
            active: the plugins of the profile.
            changes: the rows that the cycle has changed so far; it appends to them.
        """
        self.pod_class = pod_class
        self.profile = active.profile
        self._active = active = active.of(pod_class)
        self.reserves = active.reserves
        self._table = table
        self._size = table.size
        self._hashes = table.hashes[: table.size]
        self._kept: dict[int, Rejections] = {}  # row -> the start for which its node is kept
        self._first = [
            table.rows[name]
            for plugin in active.preferring
            for name in plugin.preferred_nodes(pod_class)
            if name in table.rows
        ]
        self._lay_out()
        self._changes = changes or RowChanges()
        self._changes.since(0)  # the evaluation below contains all of them
        self._upto = len(self._changes.entries)  # number of changes that are evaluated
        self._resets = self._changes.resets
        self._lookahead: PredictedEvaluation | None = None
        self._settled: set[int] = set()  # rows for which the prediction is used up
        self._outdated: list[int] = []  # rows whose total was predicted, without the scores of single plugins
        self._leaders: tuple[np.uint64, list[int]] | None = None  # the best nodes at present, for a pod's hash
        self._evaluate_all()

    def _lay_out(self) -> None:
        """Lays out the fused pass, which sums up the score terms; the other plugins score on their own."""
        active, pod_class = self._active, self.pod_class
        self._summed_scorers, parts, self._scorers = active.parts(pod_class)
        row_scores = [
            RowScores(place, weight, state, pod_class, rows)
            for place, (_, weight, state) in enumerate(self._summed_scorers)
            if (rows := state.unpredictable(pod_class)) is not None
        ]
        self._fused = FusedScoring(active.snapshot, active.fit_term(pod_class), parts, active.base, row_scores)
        self._owns_capacity = active.snapshot.owns_capacity

    def _evaluate_all(self) -> None:
        rows = slice(0, self._size)
        self._own_by = self._active.unrejected.copy()
        self._own_result = np.zeros(self._size, np.int64)
        self._summed = np.empty(self._size, np.int64)
        self._fused.evaluate(rows, self._own_by, self._own_result, self._summed)
        apply_filters(self.pod_class, self._own_by, self._own_result, self._active.filters, rows)
        self._revisions = self._revised()
        self._evaluate_cross_node()
        self._raw = [state.score(self.pod_class, rows) for _, _, state in self._scorers]
        self._total_all()

    def _revised(self) -> list[int]:
        return [state.revision(self.pod_class) for state in self._active.cross_node]

    def _evaluate_cross_node(self) -> None:
        """Runs the cross-node filters and merges both kinds: the first filter that rejects a node is its reason."""
        self._cross_node_by: Int64 | None = None
        self.by, self.result = self._own_by, self._own_result
        every = slice(0, self._size)
        for index, _, state in self._active.cross_node_filters:
            results = state.filter(self.pod_class, every)
            if results is None:
                continue
            if self._cross_node_by is None:
                self._cross_node_by, self._cross_node_result = self._unset(), self._unset()
                first_refusals(self._cross_node_by, self._cross_node_result, results, index)
            else:
                note_refusals(self._cross_node_by, self._cross_node_result, results, index)
        if self._cross_node_by is not None:
            self.by, self.result = self._unset(), self._unset()
            own, cross_node = (self._own_by, self._own_result), (self._cross_node_by, self._cross_node_result)
            merged(self.by, self.result, *own, *cross_node)

    def _unset(self) -> Int64:
        return np.empty(self._size, np.int64)

    def _total_all(self) -> None:
        """Sums up all scores of each node. Without scores beyond the fused pass, its sums are the totals."""
        self._leaders = None
        self._cross_node_scores: dict[str, SparseScores] = {}
        self._cross_node_total = self._score_cross_node() if self._active.cross_node_scorers else None
        self._is_sum = (
            self._cross_node_by is None and self._cross_node_total is None and all(raw is None for raw in self._raw)
        )
        self._highest = [0] * len(self._scorers)
        total = self._summed
        if not self._is_sum:
            self._score_outdated()
            total = total.copy() if self._cross_node_total is None else total + self._cross_node_total
            self._highest = [
                0 if raw is None else add(total, raw, self.by, weight, _HOW[plugin.normalize])
                for (plugin, weight, _), raw in zip(self._scorers, self._raw, strict=True)
            ]
        if self._active.filters or not self._is_sum:
            close(total, self.by)
        self.total = total

    def _score_cross_node(self) -> Int64 | None:
        """Runs the cross-node scorers, and returns the sums of their weighted scores; None without any."""
        feasible, total = self.by == FEASIBLE, None
        for plugin, weight, state in self._active.cross_node_scorers:
            found = state.scores(self.pod_class, feasible)
            if found is None:
                continue
            rows, scores = found if isinstance(found, SparseScores) else (slice(0, self._size), found)
            part = scores * weight
            self._cross_node_scores[plugin.name] = SparseScores(rows, part)
            if total is None:
                total = np.zeros(self._size, np.int64)
            total[rows] += part
        return total

    def look_ahead(self, snapshot: CycleSnapshot) -> None:
        """Predicts each node with one more pod of the class, before many pods of it are placed."""
        if self._cross_node_by is None and self._cross_node_total is None and not self._first:
            scores = self._scorers, self._raw, self._highest
            self._lookahead = predict_evaluation(
                self._active, self.pod_class, snapshot, self.by, self._summed_scorers, *scores
            )

    def catch_up(self) -> None:
        """Evaluates the rows that have changed since the last call."""
        if self._resets != self._changes.resets:
            self._reset()
            return
        if self._upto == len(self._changes.entries):
            return
        if self._owns_capacity != self._active.snapshot.owns_capacity:
            self._lay_out()  # its arrays are those from before the first overlay
        self._leaders = None
        others: dict[int, None] = {}
        released: set[int] = set()
        renormalise = False
        for row, pod_class, predicted, releases in self._changes.since(self._upto):
            if releases:
                released.add(row)
            lookahead = self._lookahead if predicted and pod_class is self.pod_class else None
            if lookahead is not None and row not in self._settled and lookahead.predicts(row):
                renormalise |= self._apply_prediction(lookahead, row)
            else:
                others[row] = None
            self._settled.add(row)
        self._upto = len(self._changes.entries)
        if others:
            renormalise |= self._evaluate_moved(np.array(list(others)), released)
        if self._active.cross_node and self._revisions != (revisions := self._revised()):
            self._revisions = revisions
            has_rejected = self._cross_node_by is not None  # an undo may admit nodes that were rejected until now
            self._evaluate_cross_node()
            if has_rejected or self._cross_node_by is not None or self._active.cross_node_scorers:
                renormalise = True
        if renormalise:
            self._total_all()
        if self._cross_node_by is not None or self._cross_node_total is not None:
            self._lookahead = None  # pods of other classes affect the results from now on

    def _reset(self) -> None:
        """Evaluates all rows: what a preparation had taken is free again."""
        self._changes.since(0)
        self._upto, self._resets = len(self._changes.entries), self._changes.resets
        self._lookahead = None
        self._outdated.clear()
        self._lay_out()
        self._evaluate_all()

    def _evaluate_moved(self, rows: NDArray[np.intp], released: Collection[int]) -> bool:
        """Evaluates changed rows; returns True when totals must be normalised anew.

        A placement releases nothing on its node, so a rejected node stays rejected, except by the filters in `recheck`,
        and where a removal or the undoing of a placement has released something.
        """
        by = self._own_by[rows]
        refused = by >= 0
        again = [
            row
            for row, index in zip(rows[refused].tolist(), by[refused].tolist(), strict=True)
            if index in self._active.recheck or row in released
        ]
        if again:
            self._evaluate_rows(np.array(again), self._active.filters)
        moved = rows[by == FEASIBLE]
        return bool(again) | (bool(len(moved)) and self._evaluate_rows(moved, self._active.moving))

    def _apply_prediction(self, lookahead: PredictedEvaluation, row: int) -> bool:
        """Applies the prediction for a placement of the class; returns True when all totals must be normalised anew."""
        total = int(lookahead.total[row])
        if total >= 0:
            self.total[row] = total
            if not self._is_sum:
                self._outdated.append(row)
            return False
        self._own_by[row] = self.by[row] = lookahead.by[row]
        self._own_result[row] = self.result[row] = lookahead.result[row]
        self.total[row] = -1
        return any(
            raw is not None and plugin.normalize is not Normalize.NONE and int(raw[row]) == highest > 0
            for (plugin, _, _), raw, highest in zip(self._scorers, self._raw, self._highest, strict=True)
        )

    def _score_outdated(self) -> None:
        """Computes the scores of single plugins for rows whose total was predicted."""
        if not self._outdated:
            return
        rows = np.array(list(dict.fromkeys(self._outdated)))
        self._summed[rows] = self._sums(rows)
        for (plugin, _, state), raw in zip(self._scorers, self._raw, strict=True):
            if raw is not None and not plugin.node_only:
                scores = state.score(self.pod_class, rows)
                raw[rows] = 0 if scores is None else scores
        self._outdated.clear()

    def _sums(self, rows: NDArray[np.intp]) -> Int64:
        by, result, sums = np.full(len(rows), FEASIBLE), np.zeros(len(rows), np.int64), np.empty(len(rows), np.int64)
        self._fused.evaluate(rows, by, result, sums)
        return sums

    def refuse(self, row: int, plugin: Plugin, result: int) -> None:
        """Rejects a node that passed the filters but whose resources cannot be reserved."""
        self._own_by[row] = self.by[row] = self.profile.filters.index(plugin)
        self._own_result[row] = self.result[row] = result
        self._total_all()

    def keep(self, row: int, reason: Rejections) -> None:
        """Leaves a node out until the end of the cycle: its capacity is kept for a planned start."""
        self._kept[row] = reason
        self._own_by[row] = self.by[row] = NO_NODE
        self._summed[row] = -1
        self._total_all()
        self.total[row] = -1

    def _evaluate_rows(self, rows: NDArray[np.intp], filters: Sequence[Filtering]) -> bool:
        """Evaluates rows anew; returns True when all totals must be normalised anew.

        Args:
            rows: feasible ones with a new placement, or rows to evaluate by all filters.
            filters: those whose result may have changed.
        """
        pod_class, count = self.pod_class, len(rows)
        by, result, total = np.full(count, FEASIBLE), np.zeros(count, np.int64), np.empty(count, np.int64)
        self._fused.evaluate(rows, by, result, total)
        if filters:
            apply_filters(pod_class, by, result, filters, rows)
        self._own_by[rows], self._own_result[rows], self._summed[rows] = by, result, total
        renormalise = self._cross_node_total is not None and bool((by != FEASIBLE).any())
        if self._cross_node_by is not None:
            overlay(by, result, self._cross_node_by[rows], self._cross_node_result[rows])
            self.by[rows], self.result[rows] = by, result
        for (plugin, weight, state), raw, highest in zip(self._scorers, self._raw, self._highest, strict=True):
            if raw is None:
                continue
            if not plugin.node_only:
                scores = state.score(pod_class, rows)
                raw[rows] = 0 if scores is None else scores
                renormalise |= plugin.normalize is not Normalize.NONE
            if plugin.normalize is not Normalize.NONE:
                # Only a highest node that falls out can lower what the others are measured by.
                renormalise |= highest > 0 and bool((raw[rows[by != FEASIBLE]] == highest).any())
            total += normalized(raw[rows], highest, plugin.normalize) * weight
        if self._cross_node_total is not None:
            total += self._cross_node_total[rows]
        close(total, by)
        self.total[rows] = total
        return renormalise

    def choose(self, pod_hash: np.uint64) -> int:
        """Returns the row of the best node, ties broken by the pod's hash; -1 when none is feasible.

        A preferred node of a plugin takes precedence over every score.
        """
        for row in self._first:
            if self.total[row] >= 0:
                return row
        hashes, total, best = self._hashes, self.total, self._best(pod_hash)
        if len(best) > 1 and (total[best[0]], hashes[best[0]]) == (total[best[1]], hashes[best[1]]):
            return min(best[:2], key=self._table.names.__getitem__)  # two names with one hash
        return best[0] if best else -1

    def run(self, hashes: Sequence[np.uint64]) -> tuple[list[int], list[int]]:
        """Returns the rows for the next pods of the class, and their totals, as far as each goes to another node as
        predicted.

        Args:
            hashes: of their uids.
        """
        self.catch_up()
        if self._lookahead is None or self._first:
            return [], []
        if not all(state.ignores_own_placements(self.pod_class) for state in self._active.cross_node):
            return [], []
        moved = np.zeros(self._size, np.bool_)
        moved[list(self._settled)] = True
        if self._lookahead.unpredicted is not None:
            moved |= self._lookahead.unpredicted
        rows, totals = np.empty((2, len(hashes)), np.int64)
        found: int = run(
            self.total, self._lookahead.total, moved, self._hashes, np.array(hashes, np.uint64), rows, totals
        )
        return rows[:found].tolist(), totals[:found].tolist()

    def _best(self, pod_hash: np.uint64) -> list[int]:
        """Returns the rows of the best nodes for the pod, the best first."""
        if self._leaders is None or self._leaders[0] != pod_hash:
            self._leaders = pod_hash, best_rows(self.total, self._hashes, pod_hash, BEST).tolist()
        return self._leaders[1]

    def none_feasible(self) -> bool:
        """Returns True when no node admits a pod of the class at present."""
        return bool(self.total.max(initial=-1) < 0)

    def feasible(self) -> NDArray[np.intp]:
        """Returns the rows that passed every filter."""
        return np.flatnonzero(self.by == FEASIBLE)

    def resolvable(self) -> NDArray[np.intp]:
        """Returns the rejected rows that the eviction of a pod could make feasible."""
        refused = np.flatnonzero(self.by >= 0)
        if not len(refused):
            return refused
        pairs = np.stack((self.by[refused], self.result[refused]), axis=1)
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        filters = self.profile.filters
        helps = np.array([not filters[by].unresolvable(self.pod_class, int(result)) for by, result in kinds.tolist()])
        rows: NDArray[np.intp] = refused[helps[which.reshape(-1)]]
        return rows

    def record(self, pod_hash: np.uint64) -> ClassEvaluated:
        """Returns the record of the present evaluation; `pod_hash` orders equal nodes as `choose` does."""
        nodes, feasible = self._active.alive, occurrences(self.by, FEASIBLE)
        return ClassEvaluated(
            nodes=nodes,
            feasible=feasible,
            rejected=(
                (*rejections(self.profile, self.pod_class, self.by, self.result), *self._rejections_for_starts())
                if feasible < nodes
                else ()
            ),
            best=self.candidates(self._best(pod_hash)),
        )

    def _rejections_for_starts(self) -> Iterator[Rejections]:
        """Yields the number of nodes that are kept for each planned start."""
        for reason, nodes in Counter(self._kept.values()).items():
            yield replace(reason, nodes=nodes)

    def refusals(self, row: int) -> tuple[Rejections, ...]:
        """Returns all reasons of the first plugin that rejects a node; none for a feasible one."""
        index = int(self.by[row])
        if index < 0:
            return ()
        plugin = self.profile.filters[index]
        return tuple(
            Rejections(plugin=plugin.name, code=reason.code, nodes=1, detail=reason.detail)
            for reason in plugin.reasons(self.pod_class, int(self.result[row]))
        )

    def candidates(self, rows: list[int]) -> tuple[Candidate, ...]:
        """Returns feasible nodes, each with its total and the share of each plugin."""
        if not rows:
            return ()
        self._score_outdated()
        which = np.array(rows)
        shares: dict[str, list[int]] = {name: [score] * len(rows) for name, score in self._active.constant.items()}
        summed_scorers = (plugin.name for plugin, _, _ in self._summed_scorers)
        shares |= zip(summed_scorers, self._fused.scores(which).tolist(), strict=True)
        for (plugin, weight, _), raw, highest in zip(self._scorers, self._raw, self._highest, strict=True):
            if raw is not None:
                shares[plugin.name] = (normalized(raw[which], highest, plugin.normalize) * weight).tolist()
        for name, found in self._cross_node_scores.items():
            shares[name] = on_all_rows(found, self._size)[which].tolist()
        order = [name for name in self._active.order if name in shares]
        names, totals = self._table.names, self.total[which].tolist()
        parts = zip(*(shares[name] for name in order), strict=True) if order else [()] * len(rows)
        return tuple(
            Candidate(node=names[row], score=score, plugin_scores=dict(zip(order, part, strict=True)))
            for row, score, part in zip(rows, totals, parts, strict=True)
        )
