"""How the nodes stand for one class of equal pods, in the course of one round.

The class is judged once over all nodes; after each placement only the row that took a pod is judged again. The outcome is
the one that judging everything for every pod would have: filters and scores of a node depend on that node alone, and what does not (the
highest raw score, by which some plugins normalise) is worked out again when it changes.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.framework import Int64, Normalize, Plugin, Profile, Trial, normalized
from services.scheduler.nodes import NodeTable
from services.scheduler.ties import ranks
from shared.events.scheduling import Candidate, ClassJudged, Rejections

FEASIBLE, NO_NODE = -1, -2
BEST = 3
"""How many of the best nodes a round records per class."""


class Judge:
    """The verdicts and totals of all rows for one class.

    Attributes:
        by: int64[rows]: index of the filter that refuses the node, FEASIBLE, or NO_NODE where the row is free.
        verdict: int64[rows]: that filter's verdict.
        total: int64[rows]: sum of weighted scores of feasible nodes, -1 elsewhere.
    """

    def __init__(self, profile: Profile, trials: dict[Plugin, Trial], table: NodeTable, ask: PodAsk) -> None:
        self.ask = ask
        self.profile = profile
        self._table = table
        self._size = table.size
        self._filters = [(index, plugin, trials[plugin]) for index, plugin in enumerate(profile.filters)]
        self._moving = [entry for entry in self._filters if not entry[1].static]
        self._scorers = [(scorer.plugin, scorer.weight, trials[scorer.plugin]) for scorer in profile.scorers]
        self._raw: list[Int64 | None] = []
        self._highest: list[int] = []
        self._upto = 0  # how many placements of the round are worked in
        self.by: Int64
        self.verdict: Int64
        self.total: Int64
        self._judge_all()

    def _judge_all(self) -> None:
        rows = slice(0, self._size)
        self.by = np.where(self._table.alive[rows], FEASIBLE, NO_NODE)
        self.verdict = np.zeros(self._size, np.int64)
        self._refuse(rows, self._filters)
        self._raw = [trial.score(self.ask, rows) for _, _, trial in self._scorers]
        self._raw = [None if raw is None else raw.copy() for raw in self._raw]
        self._total_all()

    def _refuse(self, rows: slice | NDArray[np.intp], filters: Sequence[tuple[int, Plugin, Trial]]) -> None:
        by, verdict = self.by[rows], self.verdict[rows]
        for index, _, trial in filters:
            verdicts = trial.filter(self.ask, rows)
            if verdicts is None:
                continue
            refused = (verdicts != 0) & (by == FEASIBLE)
            by[refused] = index
            verdict[refused] = verdicts[refused]
        self.by[rows], self.verdict[rows] = by, verdict

    def _total_all(self) -> None:
        feasible = self.by == FEASIBLE
        total = np.zeros(self._size, np.int64)
        self._highest = []
        for (plugin, weight, _), raw in zip(self._scorers, self._raw, strict=True):
            highest = 0
            if raw is not None:
                highest = self._highest_of(plugin, raw, feasible)
                total += normalized(raw, highest, plugin.normalize) * weight
            self._highest.append(highest)
        total[~feasible] = -1
        self.total = total

    @staticmethod
    def _highest_of(plugin: Plugin, raw: Int64, feasible: NDArray[np.bool_]) -> int:
        if plugin.normalize is Normalize.NONE:
            return 0
        return int(raw[feasible].max(initial=0))

    def catch_up(self, placements: Sequence[int]) -> None:
        """Work in the placements of the round since the last call: the rows that took a pod."""
        if self._upto == len(placements):
            return
        rows = np.unique(np.array(placements[self._upto :], np.intp))
        self._upto = len(placements)
        rows = rows[self.by[rows] == FEASIBLE]  # a placement frees nothing, so what is refused stays refused
        if not len(rows):
            return
        self._refuse(rows, self._moving)
        feasible = self.by[rows] == FEASIBLE
        renormalise = False
        total = np.zeros(len(rows), np.int64)
        for place, (plugin, weight, trial) in enumerate(self._scorers):
            raw = self._raw[place]
            if raw is None:
                continue
            if not plugin.static:
                fresh = trial.score(self.ask, rows)
                assert fresh is not None, f"{plugin.name} scored this class before"
                renormalise |= plugin.normalize is not Normalize.NONE
                raw[rows] = fresh
            if plugin.normalize is not Normalize.NONE:
                # Only a highest node that falls out can lower what the others are measured by.
                renormalise |= bool((raw[rows][~feasible] == self._highest[place]).any())
            total += normalized(raw[rows], self._highest[place], plugin.normalize) * weight
        total[~feasible] = -1
        self.total[rows] = total
        if renormalise:
            self._total_all()

    def choose(self, pod_hash: np.uint64) -> int:
        """The row of the best node; among equals the one that stands highest for this pod. -1 when none is feasible."""
        if not self._size:
            return -1
        best = self.total.max()
        if best < 0:
            return -1
        tied = np.flatnonzero(self.total == best)
        if len(tied) == 1:
            return int(tied[0])
        standing = ranks(self._table.hashes[tied], pod_hash)
        highest = np.flatnonzero(standing == standing.max())
        if len(highest) > 1:  # two names with one hash
            return min((int(tied[place]) for place in highest), key=self._table.names.__getitem__)
        return int(tied[highest[0]])

    def feasible(self) -> NDArray[np.intp]:
        """Rows that passed every filter."""
        return np.flatnonzero(self.by == FEASIBLE)

    def judged(self, pod_hash: np.uint64) -> ClassJudged:
        """The record of how the nodes stand now; `pod_hash` orders equal nodes as `choose` would."""
        return ClassJudged(
            nodes=int((self.by != NO_NODE).sum()),
            feasible=int((self.by == FEASIBLE).sum()),
            rejected=self._rejections(),
            best=self._best(pod_hash),
        )

    def _rejections(self) -> tuple[Rejections, ...]:
        rejections: list[Rejections] = []
        for index, plugin, _ in self._filters:
            refused = self.verdict[self.by == index]
            if not len(refused):
                continue
            counts: Counter[tuple[str, str]] = Counter()
            for verdict, nodes in zip(*np.unique(refused, return_counts=True), strict=True):
                for reason in plugin.reasons(self.ask, int(verdict)):
                    counts[reason.code, reason.detail] += int(nodes)
            rejections += [
                Rejections(plugin=plugin.name, code=code, nodes=nodes, detail=detail)
                for (code, detail), nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            ]
        return tuple(rejections)

    def _best(self, pod_hash: np.uint64) -> tuple[Candidate, ...]:
        rows = self.feasible()
        if not len(rows):
            return ()
        if len(rows) > BEST:  # keep all that tie with the last one kept
            least = np.partition(self.total[rows], -BEST)[-BEST]
            rows = rows[self.total[rows] >= least]
        standing = ranks(self._table.hashes[rows], pod_hash)
        order = np.lexsort((standing, self.total[rows]))[::-1][:BEST]
        return tuple(self._candidate(int(rows[place])) for place in order)

    def _candidate(self, row: int) -> Candidate:
        parts: dict[str, int] = {}
        for place, (plugin, weight, _) in enumerate(self._scorers):
            raw = self._raw[place]
            if raw is not None:
                at = normalized(raw[row : row + 1], self._highest[place], plugin.normalize)
                parts[plugin.name] = int(at[0]) * weight
        return Candidate(node=self._table.names[row], score=int(self.total[row]), parts=parts)
