"""Classes of pods that differ in amounts alone: what is said of all of them, and pods of them placed in one compiled pass."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cycle.active_plugins import Panel, refuse_by
from services.scheduler.cycle.fused_scoring import lay_out
from services.scheduler.cycle.rejection_summary import BEST, listed, rejections
from services.scheduler.framework.plugin_state import LookaheadScore
from services.scheduler.framework.protocols import is_kind
from services.scheduler.framework.score_terms import Evenness, Fullness, Left
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.sequential import place
from services.scheduler.kernels.tiles import Int64
from services.scheduler.state.pod_class import PodAsk
from shared.events.scheduling import Candidate, ClassEvaluated, Rejections

_KINDS = 16
"""So many kinds of shortage are told apart: of two resources and the number of pods there are not that many."""


class Foreseen(NamedTuple):
    """Where a pod goes.

    Attributes:
        row: the node's; score: its total there.
        judged: the record of its class.
    """

    row: int
    score: int
    judged: ClassEvaluated


class Kin:
    """Classes that differ in amounts alone, in one cycle."""

    def __init__(self, panel: Panel, ask: PodAsk) -> None:
        """Find out what is said of all of them.

        Args:
            panel: narrowed to them.
            ask: one of them.
        """
        self._panel = panel
        self._ask = ask
        self._before: Int64 = panel.nobody.copy()
        verdict = np.zeros(len(self._before), np.int64)
        refuse_by(ask, self._before, verdict, panel.filters, slice(0, panel.room.size))
        self._feasible = int((self._before == FEASIBLE).sum())
        self._rejected: tuple[Rejections, ...] = ()
        if self._feasible < panel.alive:
            self._rejected = rejections(panel.profile, ask, self._before, verdict)
        scorers = [plugin.name for plugin, _, _ in panel.scorers]
        order = [name for name in panel.order if name in panel.flat or name in scorers]
        self._order = [
            (name, scorers.index(name) if name in scorers else -1, panel.flat.get(name, 0)) for name in order
        ]
        self._is_arithmetic = self._can_be_foreseen()

    def _can_be_foreseen(self) -> bool:
        panel, ask = self._panel, self._ask
        if panel.fitting is None or any(guide.preferred_nodes(ask) for guide in panel.guides):
            return False
        # Who refuses a node before room is asked for refuses it for good; of one behind, its reason may be another.
        if any(index > panel.fitting[0] or not plugin.node_only for index, plugin, _ in panel.filters):
            return False
        summing, _, others = panel.parts(ask)
        return not others and all(is_kind(state, LookaheadScore) and state.can_predict(ask) for _, _, state in summing)

    def is_arithmetic(self) -> bool:
        """Whether all that is said of the classes now, and all that their pods change, is arithmetic or the same for all of them."""
        if not self._is_arithmetic:
            return False
        panel, every = self._panel, slice(0, self._panel.room.size)
        return not any(state.filter(self._ask, every) is not None for _, _, state in panel.wide_filters) and not any(
            state.scores(self._ask, panel.nobody == FEASIBLE) is not None for _, _, state in panel.wide_scorers
        )

    def place(self, asks: Sequence[PodAsk], hashes: Sequence[np.uint64]) -> list[Foreseen]:
        """Place pods one after the other, where `is_arithmetic` holds.

        Args:
            hashes: of their uids.

        Returns:
            The first of them: as many as a node will take, and are not special in some way.
        """
        panel, room, table = self._panel, self._panel.room, self._panel.room.table
        said = [panel.parts(ask)[1] for ask in asks]
        layout = lay_out(said[0])
        fits = [fit for ask in asks if (fit := panel.fit_term(ask)) is not None]
        index, shortage = fits[0]
        taken = [
            [(column, size) for column, size in table.vector(ask) if column < room.requested.shape[1]] for ask in asks
        ]
        rows, totals = np.full((len(asks), BEST), -1, np.int64), np.zeros((len(asks), BEST), np.int64)
        each = np.zeros((len(asks), len(said[0]), BEST), np.int64)
        kinds, counts = np.zeros((2, len(asks), _KINDS), np.int64)
        even_place, even_weight, even_resources, _ = layout.even
        left_place, left_weight, left_allocatable, load = layout.left[:4]
        done: int = place(
            self._before,
            table.hashes[: room.size],
            panel.base,
            room.pods,
            table.allowed_pods,
            table.allocatable.T,
            room.requested.T,
            room.scored.T,
            index,
            shortage.resources,
            _table([fit.sizes for _, fit in fits]),
            shortage.too_small,
            layout.full,
            layout.terms,
            _table(
                [[size for _, part in parts if isinstance(part, Fullness) for size in part.asked] for parts in said]
            ),
            even_place,
            even_weight,
            even_resources,
            _table(
                [[size for _, part in parts if isinstance(part, Evenness) for size in part.asked] for parts in said]
            ),
            left_place,
            left_weight,
            left_allocatable,
            load,
            _table([[size for _, part in parts if isinstance(part, Left) for size in part.incoming] for parts in said]),
            *layout.left[5:],
            np.array(hashes, np.uint64),
            np.array([column for column, _ in taken[0]], np.int64),
            _table([[size for _, size in pairs] for pairs in taken]),
            _table([(ask.held.get("cpu", 0), ask.held.get("memory", 0)) for ask in asks]),
            rows,
            totals,
            each,
            kinds,
            counts,
        )
        return [
            Foreseen(rows.item(number, 0), totals.item(number, 0), self._judged(asks[number], *found))
            for number, found in enumerate(
                zip(*(array[:done].tolist() for array in (rows, totals, each, kinds, counts)), strict=True)
            )
        ]

    def _judged(
        self,
        ask: PodAsk,
        rows: list[int],
        totals: list[int],
        each: list[list[int]],
        kinds: list[int],
        counts: list[int],
    ) -> ClassEvaluated:
        names, rejected, feasible = self._panel.room.table.names, self._rejected, self._feasible
        if counts[0] and self._panel.fitting is not None:
            plugin = self._panel.profile.filters[self._panel.fitting[0]]
            short = {kind: nodes for kind, nodes in zip(kinds, counts, strict=True) if nodes}
            rejected += listed(plugin, ask, Counter(short))
            feasible -= sum(counts)
        return ClassEvaluated(
            nodes=self._panel.alive,
            feasible=feasible,
            rejected=rejected,
            best=tuple(
                Candidate(
                    node=names[row],
                    score=totals[rank],
                    plugin_scores={name: each[at][rank] if at >= 0 else same for name, at, same in self._order},
                )
                for rank, row in enumerate(rows)
                if row >= 0
            ),
        )


def _table(rows: Sequence[Sequence[int] | Int64]) -> Int64:
    """[pods, numbers]."""
    return np.array(rows, np.int64).reshape(len(rows), -1)
