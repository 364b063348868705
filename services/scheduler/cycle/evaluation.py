"""How the nodes stand for one class of equal pods, in the course of one cycle.

The class is judged once over all nodes; after each placement only the row that took a pod is judged again. The outcome is
the one that judging everything for every pod would have: filters and scores of a node depend on that node alone, and what does not is
worked out again when it changes: the highest raw score, by which some plugins normalise, and all that wide plugins say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cycle.active_plugins import ActivePlugins, Filtering, refuse_by
from services.scheduler.cycle.fused_scoring import Pass
from services.scheduler.cycle.lookahead import Lookahead, compute_lookahead
from services.scheduler.cycle.rejection_summary import BEST, rejections
from services.scheduler.framework.plugin import Plugin, normalized
from services.scheduler.framework.spec import Normalize
from services.scheduler.kernels.select import (
    AS_IT_IS,
    DOWN,
    FEASIBLE,
    UP,
    add,
    close,
    leading,
    note_refusals,
    occurrences,
    overlay,
    run,
)
from services.scheduler.kernels.tiles import Int64
from services.scheduler.state.pod_class import PodClass
from shared.events.scheduling import Candidate, ClassEvaluated, Rejections

_HOW = {Normalize.NONE: AS_IT_IS, Normalize.UP: UP, Normalize.DOWN: DOWN}


class Placement(NamedTuple):
    """A pod of the cycle went to a node.

    Attributes:
        predicted: it changed the node as `compute_lookahead` says of its class.
    """

    row: int
    pod_class: PodClass
    predicted: bool


class ClassEvaluation:
    """The verdicts and totals of all rows for one class.

    Attributes:
        by: int64[rows]: index of the filter that refuses the node, FEASIBLE, or NO_NODE where the row is free.
        result: int64[rows]: that filter's verdict.
        gives: whether a plugin may have more to give to pods of the class than room.
        total: int64[rows]: sum of weighted scores of feasible nodes, -1 elsewhere.
    """

    def __init__(
        self, active: ActivePlugins, table: NodeTable, pod_class: PodClass, placements: Sequence[Placement] = ()
    ) -> None:
        """Judge all nodes as they stand.

        Args:
            active: of the profile.
            placements: of the cycle so far, and of its next pods: the cycle appends to it.
        """
        self.pod_class = pod_class
        self.profile = active.profile
        self._active = active = active.of(pod_class)
        self.gives = active.gives
        self._table = table
        self._size = table.size
        self._hashes = table.hashes[: table.size]
        self._first = [
            table.rows[name]
            for guide in active.guides
            for name in guide.preferred_nodes(pod_class)
            if name in table.rows
        ]
        # Whose scores one pass sums up, and who is asked for itself.
        self._summing, parts, self._scorers = active.parts(pod_class)
        self._pass = Pass(active.snapshot, active.fit_term(pod_class), parts, active.base)
        self._placements = placements
        self._upto = len(placements)  # how many of them are worked in
        self._lookahead: Lookahead | None = None
        self._settled: set[int] = set()  # rows whose next pod is not the foreseen one
        self._behind: list[int] = []  # rows that moved as foreseen, of which the single scores are not known
        self._leaders: tuple[np.uint64, list[int]] | None = None  # the best nodes as they stand, for a pod's hash
        self._judge_all()

    def _judge_all(self) -> None:
        rows = slice(0, self._size)
        self._own_by = self._active.nobody.copy()
        self._own_result = np.zeros(self._size, np.int64)
        self._summed = np.empty(self._size, np.int64)
        self._pass.evaluate(rows, self._own_by, self._own_result, self._summed)
        refuse_by(self.pod_class, self._own_by, self._own_result, self._active.filters, rows)
        self._revisions = self._revised()
        self._judge_wide()
        self._raw = [state.score(self.pod_class, rows) for _, _, state in self._scorers]
        self._total_all()

    def _revised(self) -> list[int]:
        return [state.revision(self.pod_class) for state in self._active.wide]

    def _judge_wide(self) -> None:
        """Ask the wide filters of all nodes, and bring both kinds together: the first that refuses a node is its reason."""
        self._cross_node_by: Int64 | None = None
        self.by, self.result = self._own_by, self._own_result
        said = [state.filter(self.pod_class, slice(0, self._size)) for _, _, state in self._active.wide_filters]
        if all(results is None for results in said):
            return
        self._cross_node_by, self._cross_node_result = np.full(self._size, FEASIBLE), np.zeros(self._size, np.int64)
        for (index, _, _), results in zip(self._active.wide_filters, said, strict=True):
            if results is not None:
                note_refusals(self._cross_node_by, self._cross_node_result, results, index)
        self.by, self.result = self._own_by.copy(), self._own_result.copy()
        overlay(self.by, self.result, self._cross_node_by, self._cross_node_result)

    def _total_all(self) -> None:
        """Sum up what all say of each node. Where one pass says it all, the totals are its sums."""
        self._leaders = None
        self._cross_node_scores: dict[str, Int64] = {}
        self._cross_node_total: Int64 | None = None
        for plugin, weight, state in self._active.wide_scorers:
            scores = state.scores(self.pod_class, self.by == FEASIBLE)
            if scores is not None:
                part = self._cross_node_scores[plugin.name] = scores * weight
                self._cross_node_total = part if self._cross_node_total is None else self._cross_node_total + part
        self._is_sum = (
            self._cross_node_by is None and self._cross_node_total is None and all(raw is None for raw in self._raw)
        )
        self._highest = [0] * len(self._scorers)
        total = self._summed
        if not self._is_sum:
            self._score_behind()
            total = total.copy() if self._cross_node_total is None else total + self._cross_node_total
            self._highest = [
                0 if raw is None else add(total, raw, self.by, weight, _HOW[plugin.normalize])
                for (plugin, weight, _), raw in zip(self._scorers, self._raw, strict=True)
            ]
        if self._active.filters or not self._is_sum:
            close(total, self.by)
        self.total = total

    def look_ahead(self, snapshot: CycleSnapshot) -> None:
        """Work out what one more pod of the class makes of each node, for the many that come."""
        if self._cross_node_by is None and self._cross_node_total is None and not self._first:
            asked = self._scorers, self._raw, self._highest
            self._lookahead = compute_lookahead(self._active, self.pod_class, snapshot, self.by, self._summing, *asked)

    def catch_up(self) -> None:
        """Work in the cycle's placements since the last call."""
        placements = self._placements
        if self._upto == len(placements):
            return
        self._leaders = None
        others: dict[int, None] = {}
        renormalise = False
        for row, pod_class, predicted in placements[self._upto :]:
            if predicted and pod_class is self.pod_class and self._lookahead is not None and row not in self._settled:
                renormalise |= self._move_on(self._lookahead, row)
            else:
                others[row] = None
            self._settled.add(row)
        self._upto = len(placements)
        if others:
            renormalise |= self._judge_moved(np.array(list(others)))
        if self._active.wide and self._revisions != (revisions := self._revised()):
            self._revisions = revisions
            self._judge_wide()
            if self._cross_node_by is not None or self._active.wide_scorers:
                renormalise = True
        if renormalise:
            self._total_all()
        if self._cross_node_by is not None or self._cross_node_total is not None:
            self._lookahead = None  # others than the pods of this class decide now

    def _judge_moved(self, rows: NDArray[np.intp]) -> bool:
        """Judge rows that took pods. A placement frees nothing on its node, so who is refused there stays refused, but by the fickle."""
        by = self._own_by[rows]
        refused = by >= 0
        again = [
            row for row, index in zip(rows[refused], by[refused].tolist(), strict=True) if index in self._active.fickle
        ]
        if again:
            self._judge_rows(np.array(again), self._active.filters)
        moved = rows[by == FEASIBLE]
        return bool(again) | (bool(len(moved)) and self._judge_rows(moved, self._active.moving))

    def _move_on(self, lookahead: Lookahead, row: int) -> bool:
        """A feasible row took a pod of the class; whether the scores of all others have to be normalised anew."""
        total = int(lookahead.total[row])
        if total >= 0:
            self.total[row] = total
            if not self._is_sum:
                self._behind.append(row)
            return False
        self._own_by[row] = self.by[row] = lookahead.by[row]
        self._own_result[row] = self.result[row] = lookahead.result[row]
        self.total[row] = -1
        return any(
            raw is not None and plugin.normalize is not Normalize.NONE and int(raw[row]) == highest > 0
            for (plugin, _, _), raw, highest in zip(self._scorers, self._raw, self._highest, strict=True)
        )

    def _score_behind(self) -> None:
        """Fill in the single scores of rows that moved as foreseen."""
        if not self._behind:
            return
        rows = np.array(list(dict.fromkeys(self._behind)))
        self._summed[rows] = self._sums(rows)
        for (plugin, _, state), raw in zip(self._scorers, self._raw, strict=True):
            if raw is not None and not plugin.node_only:
                scores = state.score(self.pod_class, rows)
                raw[rows] = 0 if scores is None else scores
        self._behind.clear()

    def _sums(self, rows: NDArray[np.intp]) -> Int64:
        by, result, sums = np.full(len(rows), FEASIBLE), np.zeros(len(rows), np.int64), np.empty(len(rows), np.int64)
        self._pass.evaluate(rows, by, result, sums)
        return sums

    def refuse(self, row: int, plugin: Plugin, result: int) -> None:
        """Take a node out that passed, and has nothing to give the pod after all."""
        self._own_by[row] = self.by[row] = self.profile.filters.index(plugin)
        self._own_result[row] = self.result[row] = result
        self._total_all()

    def _judge_rows(self, rows: NDArray[np.intp], filters: Sequence[Filtering]) -> bool:
        """Judge rows that took a pod and were feasible, or are asked for by all again; whether others' scores have to be normalised anew.

        Args:
            filters: those that may say otherwise than before.
        """
        pod_class, count = self.pod_class, len(rows)
        by, result, total = np.full(count, FEASIBLE), np.zeros(count, np.int64), np.empty(count, np.int64)
        self._pass.evaluate(rows, by, result, total)
        refuse_by(pod_class, by, result, filters, rows)
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
        """The row of the best node; among equals the one that stands highest for this pod. -1 when none is feasible.

        A node that a plugin names comes first, whatever its score.
        """
        for row in self._first:
            if self.total[row] >= 0:
                return row
        hashes, total, best = self._hashes, self.total, self._best(pod_hash)
        if len(best) > 1 and (total[best[0]], hashes[best[0]]) == (total[best[1]], hashes[best[1]]):
            return min(best[:2], key=self._table.names.__getitem__)  # two names with one hash
        return best[0] if best else -1

    def run(self, hashes: Sequence[np.uint64]) -> tuple[list[int], list[int]]:
        """Where the next pods of the class go, and those nodes' totals, as far as each goes to a node of its own and all is foreseen.

        Args:
            hashes: of their uids.
        """
        self.catch_up()
        if self._lookahead is None or self.gives or self._first:
            return [], []
        if not all(state.ignores_own_placements(self.pod_class) for state in self._active.wide):
            return [], []
        moved = np.zeros(self._size, np.bool_)
        moved[list(self._settled)] = True
        rows, totals = np.empty((2, len(hashes)), np.int64)
        found: int = run(
            self.total, self._lookahead.total, moved, self._hashes, np.array(hashes, np.uint64), rows, totals
        )
        return rows[:found].tolist(), totals[:found].tolist()

    def _best(self, pod_hash: np.uint64) -> list[int]:
        """The rows of the best nodes for the pod, the best first."""
        if self._leaders is None or self._leaders[0] != pod_hash:
            self._leaders = pod_hash, leading(self.total, self._hashes, pod_hash, BEST).tolist()
        return self._leaders[1]

    def none_feasible(self) -> bool:
        """Whether no node will take a pod of the class as things stand."""
        return bool(self.total.max(initial=-1) < 0)

    def feasible(self) -> NDArray[np.intp]:
        """Rows that passed every filter."""
        return np.flatnonzero(self.by == FEASIBLE)

    def resolvable(self) -> NDArray[np.intp]:
        """Rows that are refused for what a pod that goes could change."""
        refused = np.flatnonzero(self.by >= 0)
        if not len(refused):
            return refused
        pairs = np.stack((self.by[refused], self.result[refused]), axis=1)
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        filters = self.profile.filters
        helps = np.array([not filters[by].unresolvable(self.pod_class, int(result)) for by, result in kinds.tolist()])
        rows: NDArray[np.intp] = refused[helps[which.reshape(-1)]]
        return rows

    def judged(self, pod_hash: np.uint64) -> ClassEvaluated:
        """The record of how the nodes stand now; `pod_hash` orders equal nodes as `choose` would."""
        nodes, feasible = self._active.alive, occurrences(self.by, FEASIBLE)
        return ClassEvaluated(
            nodes=nodes,
            feasible=feasible,
            rejected=rejections(self.profile, self.pod_class, self.by, self.result) if feasible < nodes else (),
            best=self.candidates(self._best(pod_hash)),
        )

    def refusals(self, row: int) -> tuple[Rejections, ...]:
        """Why one node is refused: every reason of the first plugin that does; none for a feasible one."""
        index = int(self.by[row])
        if index < 0:
            return ()
        plugin = self.profile.filters[index]
        return tuple(
            Rejections(plugin=plugin.name, code=reason.code, nodes=1, detail=reason.detail)
            for reason in plugin.reasons(self.pod_class, int(self.result[row]))
        )

    def candidates(self, rows: list[int]) -> tuple[Candidate, ...]:
        """Feasible nodes, each with its total and each plugin's part of it."""
        if not rows:
            return ()
        self._score_behind()
        which = np.array(rows)
        said: dict[str, list[int]] = {name: [score] * len(rows) for name, score in self._active.flat.items()}
        summing = (plugin.name for plugin, _, _ in self._summing)
        said |= zip(summing, self._pass.scores(which).tolist(), strict=True)
        for (plugin, weight, _), raw, highest in zip(self._scorers, self._raw, self._highest, strict=True):
            if raw is not None:
                said[plugin.name] = (normalized(raw[which], highest, plugin.normalize) * weight).tolist()
        for name, scores in self._cross_node_scores.items():
            said[name] = scores[which].tolist()
        order = [name for name in self._active.order if name in said]
        names, totals = self._table.names, self.total[which].tolist()
        parts = zip(*(said[name] for name in order), strict=True) if order else [()] * len(rows)
        return tuple(
            Candidate(node=names[row], score=score, plugin_scores=dict(zip(order, part, strict=True)))
            for row, score, part in zip(rows, totals, parts, strict=True)
        )
