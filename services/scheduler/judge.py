"""How the nodes stand for one class of equal pods, in the course of one round.

The class is judged once over all nodes; after each placement only the row that took a pod is judged again. The outcome is
the one that judging everything for every pod would have: filters and scores of a node depend on that node alone, and what does not is
worked out again when it changes: the highest raw score, by which some plugins normalise, and all that wide plugins say.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.foresight import Foresight, foresee
from services.scheduler.framework import Int64, Normalize, Plugin, Room, Trial, normalized, normalized_at
from services.scheduler.kernels.best import (
    AS_IT_IS,
    DOWN,
    FEASIBLE,
    NO_NODE,
    UP,
    add,
    close,
    leading,
    note_refusals,
    overlay,
    tally,
)
from services.scheduler.kernels.rows import Rows
from services.scheduler.nodes import NodeTable
from services.scheduler.panel import Panel
from shared.events.scheduling import Candidate, ClassJudged, Rejections

TOGETHER = 5
"""So many rows are judged at once at the cost of as many one by one."""
BEST = 3
"""How many of the best nodes a round records per class."""


_HOW = {Normalize.NONE: AS_IT_IS, Normalize.UP: UP, Normalize.DOWN: DOWN}


class Placement(NamedTuple):
    """A pod of the round went to a node.

    Attributes:
        foreseen: it changed the node as `foresee` says of its class.
    """

    row: int
    ask: PodAsk
    foreseen: bool


class Judge:
    """The verdicts and totals of all rows for one class.

    Attributes:
        by: int64[rows]: index of the filter that refuses the node, FEASIBLE, or NO_NODE where the row is free.
        verdict: int64[rows]: that filter's verdict.
        total: int64[rows]: sum of weighted scores of feasible nodes, -1 elsewhere.
    """

    def __init__(self, panel: Panel, table: NodeTable, ask: PodAsk, placements: Sequence[Placement] = ()) -> None:
        """Judge all nodes as they stand.

        Args:
            placements: of the round so far, and of its next pods: the round appends to it.
        """
        self.ask = ask
        self.profile = panel.profile
        self._panel = panel
        self._table = table
        self._size = table.size
        self._hashes = table.hashes[: table.size]
        self._first = [
            table.rows[name] for guide in panel.guides for name in guide.first_nodes(ask) if name in table.rows
        ]
        self._revisions: list[int] = []
        self._wide_parts: dict[str, Int64] = {}
        self._wide_total: Int64 | None = None
        self._raw: list[Int64 | None] = []
        self._highest: list[int] = []
        self._placements = placements
        self._upto = len(placements)  # how many of them are worked in
        self.by: Int64
        self.verdict: Int64
        self.total: Int64
        self._foresight: Foresight | None = None
        self._settled: set[int] = set()  # rows whose next pod is not the foreseen one
        self._behind: list[int] = []  # rows that moved as foreseen, of which the single scores are not known
        self._judge_all()

    def _judge_all(self) -> None:
        rows = slice(0, self._size)
        self._own_by = np.where(self._table.alive[rows], FEASIBLE, NO_NODE)
        self._own_verdict = np.zeros(self._size, np.int64)
        _refuse(self.ask, self._own_by, self._own_verdict, self._panel.filters, rows)
        self._judge_wide()
        self._raw = [trial.score(self.ask, rows) for _, _, trial in self._panel.scorers]
        self._total_all()

    def _judge_wide(self) -> None:
        """Ask the wide filters of all nodes, and bring both kinds together: the first that refuses a node is its reason."""
        self._revisions = [trial.revision(self.ask) for trial in self._panel.wide]
        self._wide_by: Int64 | None = None
        self.by, self.verdict = self._own_by, self._own_verdict
        said = [trial.filter(self.ask, slice(0, self._size)) for _, _, trial in self._panel.wide_filters]
        if all(verdicts is None for verdicts in said):
            return
        wide_by, wide_verdict = np.full(self._size, FEASIBLE), np.zeros(self._size, np.int64)
        for (index, _, _), verdicts in zip(self._panel.wide_filters, said, strict=True):
            if verdicts is not None:
                note_refusals(wide_by, wide_verdict, verdicts, index)
        self._wide_by = wide_by
        self.by, self.verdict = self._own_by.copy(), self._own_verdict.copy()
        overlay(self.by, self.verdict, wide_by, wide_verdict)

    def _total_all(self) -> None:
        self._score_behind()
        total = np.zeros(self._size, np.int64)
        self._highest = [
            0 if raw is None else add(total, raw, self.by, weight, _HOW[plugin.normalize])
            for (plugin, weight, _), raw in zip(self._panel.scorers, self._raw, strict=True)
        ]
        self._wide_parts, self._wide_total = {}, None
        for plugin, weight, trial in self._panel.wide_scorers:
            scores = trial.scores(self.ask, self.by == FEASIBLE)
            if scores is None:
                continue
            part = self._wide_parts[plugin.name] = scores * weight
            self._wide_total = part if self._wide_total is None else self._wide_total + part
        if self._wide_total is not None:
            total += self._wide_total
        close(total, self.by)
        self.total = total

    def look_ahead(self, room: Room) -> None:
        """Work out what one more pod of the class makes of each node, for the many that come."""
        if self._wide_by is None and self._wide_total is None and not self._first:
            self._foresight = foresee(self._panel, self.ask, room, self.by, self._raw, self._highest)

    def catch_up(self) -> None:
        """Work in the round's placements since the last call."""
        placements = self._placements
        if self._upto == len(placements):
            return
        others: dict[int, None] = {}
        renormalise = False
        for row, ask, foreseen in placements[self._upto :]:
            if foreseen and ask is self.ask and self._foresight is not None and row not in self._settled:
                renormalise |= self._move_on(self._foresight, row)
            else:
                others[row] = None
            self._settled.add(row)
        self._upto = len(placements)
        moved: list[int] = []
        for row in others:
            by = int(self._own_by[row])
            if by in self._panel.fickle:
                self._judge_again(row)
                renormalise = True
            elif by == FEASIBLE:  # a placement frees nothing on its node, so what is refused there stays refused
                moved.append(row)
        if len(moved) >= TOGETHER:
            renormalise |= self._judge_rows(np.array(moved))
        else:
            for row in moved:
                renormalise |= self._judge_row(row)
        if self._panel.wide and self._revisions != [trial.revision(self.ask) for trial in self._panel.wide]:
            self._judge_wide()
            if self._wide_by is not None or self._panel.wide_scorers:
                renormalise = True
        if renormalise:
            self._total_all()
        if self._wide_by is not None or self._wide_total is not None:
            self._foresight = None  # others than the pods of this class decide now

    def _move_on(self, foresight: Foresight, row: int) -> bool:
        """A feasible row took a pod of the class; whether the scores of all others have to be normalised anew."""
        total = int(foresight.total[row])
        if total >= 0:
            self.total[row] = total
            self._behind.append(row)
            return False
        self._own_by[row] = self.by[row] = foresight.by[row]
        self._own_verdict[row] = self.verdict[row] = foresight.verdict[row]
        self.total[row] = -1
        return any(
            raw is not None and plugin.normalize is not Normalize.NONE and int(raw[row]) == highest > 0
            for (plugin, _, _), raw, highest in zip(self._panel.scorers, self._raw, self._highest, strict=True)
        )

    def _score_behind(self) -> None:
        """Fill in the single scores of rows that moved as foreseen."""
        for row in dict.fromkeys(self._behind):
            for (plugin, _, trial), raw in zip(self._panel.scorers, self._raw, strict=True):
                if raw is not None and not plugin.static:
                    raw[row] = trial.score_at(self.ask, row)
        self._behind.clear()

    def refuse(self, row: int, plugin: Plugin, verdict: int) -> None:
        """Take a node out that passed, and has nothing to give the pod after all."""
        self._own_by[row] = self.by[row] = self.profile.filters.index(plugin)
        self._own_verdict[row] = self.verdict[row] = verdict
        self._total_all()

    def _judge_again(self, row: int) -> None:
        """Judge a row that took a pod and was refused by a plugin which may think better of it."""
        self._own_by[row], self._own_verdict[row] = FEASIBLE, 0
        for index, _, trial in self._panel.filters:
            refused = trial.filter_at(self.ask, row)
            if refused:
                self._own_by[row], self._own_verdict[row] = index, refused
                break
        if self._wide_by is None or self._wide_by[row] == FEASIBLE or FEASIBLE < self._own_by[row] < self._wide_by[row]:
            self.by[row], self.verdict[row] = self._own_by[row], self._own_verdict[row]
        for place, (plugin, _, trial) in enumerate(self._panel.scorers):
            raw = self._raw[place]
            if raw is not None and not plugin.static:
                raw[row] = trial.score_at(self.ask, row)

    def _judge_rows(self, rows: NDArray[np.intp]) -> bool:
        """`_judge_row` of several rows at once."""
        ask = self.ask
        by, verdict = np.full(len(rows), FEASIBLE), np.zeros(len(rows), np.int64)
        _refuse(ask, by, verdict, self._panel.moving, rows)
        out = by != FEASIBLE
        for row, index, refused in zip(rows[out].tolist(), by[out].tolist(), verdict[out].tolist(), strict=True):
            self._own_by[row], self._own_verdict[row] = index, refused
            if self._wide_by is not None and not FEASIBLE < self._wide_by[row] < index:
                self.by[row], self.verdict[row] = index, refused
        total = np.zeros(len(rows), np.int64)
        renormalise = bool(out.any()) and self._wide_total is not None
        for (plugin, weight, trial), raw, highest in zip(self._panel.scorers, self._raw, self._highest, strict=True):
            if raw is None:
                continue
            if not plugin.static:
                scores = trial.score(ask, rows)
                raw[rows] = 0 if scores is None else scores
                renormalise |= plugin.normalize is not Normalize.NONE
            if plugin.normalize is not Normalize.NONE:
                renormalise |= highest > 0 and bool((raw[rows[out]] == highest).any())
            total += normalized(raw[rows], highest, plugin.normalize) * weight
        if self._wide_total is not None:
            total += self._wide_total[rows]
        total[out | (self.by[rows] != FEASIBLE)] = -1
        self.total[rows] = total
        return renormalise

    def _judge_row(self, row: int) -> bool:
        """Judge a row that took a pod; whether the scores of all others have to be normalised anew."""
        refused = 0
        for index, _, trial in self._panel.moving:
            refused = trial.filter_at(self.ask, row)
            if refused:
                self._own_by[row], self._own_verdict[row] = index, refused
                if self._wide_by is not None and not FEASIBLE < self._wide_by[row] < index:
                    self.by[row], self.verdict[row] = index, refused
                break
        feasible = not refused and self.by[row] == FEASIBLE
        renormalise = bool(refused) and self._wide_total is not None  # which is measured against the feasible
        total = 0
        for place, (plugin, weight, trial) in enumerate(self._panel.scorers):
            raw = self._raw[place]
            if raw is None:
                continue
            if plugin.static:
                score = int(raw[row])
            else:
                raw[row] = score = trial.score_at(self.ask, row)
                renormalise |= plugin.normalize is not Normalize.NONE
            if plugin.normalize is not Normalize.NONE:
                # Only a highest node that falls out can lower what the others are measured by.
                renormalise |= bool(refused) and score == self._highest[place] > 0
            total += normalized_at(score, self._highest[place], plugin.normalize) * weight
        if self._wide_total is not None:
            total += int(self._wide_total[row])
        self.total[row] = total if feasible else -1
        return renormalise

    def choose(self, pod_hash: np.uint64) -> int:
        """The row of the best node; among equals the one that stands highest for this pod. -1 when none is feasible.

        A node that a plugin names comes first, whatever its score.
        """
        for row in self._first:
            if self.total[row] >= 0:
                return row
        hashes, total = self._hashes, self.total
        best: list[int] = leading(total, hashes, pod_hash, 2).tolist()
        if len(best) == 2 and (total[best[0]], hashes[best[0]]) == (total[best[1]], hashes[best[1]]):
            return min(best, key=self._table.names.__getitem__)  # two names with one hash
        return best[0] if best else -1

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
        pairs = np.stack((self.by[refused], self.verdict[refused]), axis=1)
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        filters = self.profile.filters
        helps = np.array([not filters[by].hopeless(self.ask, int(verdict)) for by, verdict in kinds.tolist()])
        rows: NDArray[np.intp] = refused[helps[which.reshape(-1)]]
        return rows

    def judged(self, pod_hash: np.uint64) -> ClassJudged:
        """The record of how the nodes stand now; `pod_hash` orders equal nodes as `choose` would."""
        self._score_behind()
        filters = self.profile.filters
        counts: list[int] = tally(self.by, NO_NODE, len(filters) - NO_NODE).tolist()
        return ClassJudged(
            nodes=sum(counts[1:]),
            feasible=counts[FEASIBLE - NO_NODE],
            rejected=tuple(
                rejection
                for index, count in enumerate(counts[-NO_NODE:])
                if count
                for rejection in self._rejections(index, filters[index])
            ),
            best=self._best(pod_hash),
        )

    def refusals(self, row: int) -> tuple[Rejections, ...]:
        """Why one node is refused: every reason of the first plugin that does; none for a feasible one."""
        index = int(self.by[row])
        if index < 0:
            return ()
        plugin = self.profile.filters[index]
        return tuple(
            Rejections(plugin=plugin.name, code=reason.code, nodes=1, detail=reason.detail)
            for reason in plugin.reasons(self.ask, int(self.verdict[row]))
        )

    def _rejections(self, index: int, plugin: Plugin) -> list[Rejections]:
        counts: Counter[tuple[str, str]] = Counter()
        refused = self.verdict[self.by == index]
        for verdict, nodes in zip(*np.unique(refused, return_counts=True), strict=True):
            for reason in plugin.reasons(self.ask, int(verdict)):
                counts[reason.code, reason.detail] += int(nodes)
        return [
            Rejections(plugin=plugin.name, code=code, nodes=nodes, detail=detail)
            for (code, detail), nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]

    def _best(self, pod_hash: np.uint64) -> tuple[Candidate, ...]:
        rows: list[int] = leading(self.total, self._hashes, pod_hash, BEST).tolist()
        return self.candidates(rows)

    def candidates(self, rows: list[int]) -> tuple[Candidate, ...]:
        """Feasible nodes, each with its total and each plugin's part of it."""
        parts: list[dict[str, int]] = [{} for _ in rows]
        for (plugin, weight, _), raw, highest in zip(self._panel.scorers, self._raw, self._highest, strict=True):
            if raw is None:
                continue
            name, how = plugin.name, plugin.normalize
            for part, score in zip(parts, raw[rows].tolist(), strict=True):
                part[name] = (score if how is Normalize.NONE else normalized_at(score, highest, how)) * weight
        for name, scores in self._wide_parts.items():
            for part, score in zip(parts, scores[rows].tolist(), strict=True):
                part[name] = score
        names = self._table.names
        return tuple(
            Candidate(node=names[row], score=score, parts=part)
            for row, score, part in zip(rows, self.total[rows].tolist(), parts, strict=True)
        )


def _refuse(ask: PodAsk, by: Int64, verdict: Int64, filters: Sequence[tuple[int, Plugin, Trial]], rows: Rows) -> None:
    """Ask filters in order; the first that refuses a node is noted for it. by, verdict: [rows]."""
    for index, _, trial in filters:
        verdicts = trial.filter(ask, rows)
        if verdicts is not None:
            note_refusals(by, verdict, verdicts, index)
