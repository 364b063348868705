"""How the nodes stand for one class of equal pods, in the course of one round.

The class is judged once over all nodes; after each placement only the row that took a pod is judged again. The outcome is
the one that judging everything for every pod would have: filters and scores of a node depend on that node alone, and what does not (the
highest raw score, by which some plugins normalise) is worked out again when it changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.framework import Int64, Normalize, Plugin, Profile, Trial, normalized, normalized_at
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

    def __init__(
        self,
        profile: Profile,
        trials: Mapping[Plugin, Trial],
        table: NodeTable,
        ask: PodAsk,
        placements: Sequence[int] = (),
    ) -> None:
        """Judge all nodes as they stand.

        Args:
            placements: rows that took the round's pods so far, and will take the next: the round appends to it.
        """
        self.ask = ask
        self.profile = profile
        self._table = table
        self._size = table.size
        self._filters = [(index, plugin, trials[plugin]) for index, plugin in enumerate(profile.filters)]
        self._moving = [entry for entry in self._filters if not entry[1].static]
        self._scorers = [(scorer.plugin, scorer.weight, trials[scorer.plugin]) for scorer in profile.scorers]
        self._raw: list[Int64 | None] = []
        self._highest: list[int] = []
        self._placements = placements
        self._upto = len(placements)  # how many of them are worked in
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

    def catch_up(self) -> None:
        """Work in the round's placements since the last call."""
        placements = self._placements
        if self._upto == len(placements):
            return
        renormalise = False
        for row in dict.fromkeys(placements[self._upto :]):
            if self.by[row] == FEASIBLE:  # a placement frees nothing, so what is refused stays refused
                renormalise |= self._judge_row(row)
        self._upto = len(placements)
        if renormalise:
            self._total_all()

    def _judge_row(self, row: int) -> bool:
        """Judge a row that took a pod; whether the scores of all others have to be normalised anew."""
        refused = 0
        for index, _, trial in self._moving:
            refused = trial.filter_at(self.ask, row)
            if refused:
                self.by[row], self.verdict[row] = index, refused
                break
        renormalise = False
        total = 0
        for place, (plugin, weight, trial) in enumerate(self._scorers):
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
        self.total[row] = -1 if refused else total
        return renormalise

    def choose(self, pod_hash: np.uint64) -> int:
        """The row of the best node; among equals the one that stands highest for this pod. -1 when none is feasible."""
        best = self.total.max(initial=-1)
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
        counts = np.bincount(self.by - NO_NODE, minlength=len(self._filters) - NO_NODE)
        return ClassJudged(
            nodes=int(counts[1:].sum()),
            feasible=int(counts[FEASIBLE - NO_NODE]),
            rejected=tuple(
                rejection
                for index, plugin, _ in self._filters
                if counts[index - NO_NODE]
                for rejection in self._rejections(index, plugin)
            ),
            best=self._best(pod_hash),
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
        least = np.partition(self.total, -BEST)[-BEST] if self._size > BEST else 0
        rows = np.flatnonzero(self.total >= max(least, 0))  # with all that tie with the last one kept
        if not len(rows):
            return ()
        standing = ranks(self._table.hashes[rows], pod_hash)
        order = np.lexsort((standing, self.total[rows]))[::-1][:BEST]
        return tuple(self._candidate(int(rows[place])) for place in order)

    def _candidate(self, row: int) -> Candidate:
        parts: dict[str, int] = {}
        for place, (plugin, weight, _) in enumerate(self._scorers):
            raw = self._raw[place]
            if raw is not None:
                parts[plugin.name] = normalized_at(int(raw[row]), self._highest[place], plugin.normalize) * weight
        return Candidate(node=self._table.names[row], score=int(self.total[row]), parts=parts)
