"""Request variants: classes that differ only in amounts share most results, and are placed in one compiled pass."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cycle.active_plugins import ActivePlugins, apply_filters
from services.scheduler.cycle.fused_scoring import layout_of
from services.scheduler.cycle.rejection_counts import BEST, listed, rejections
from services.scheduler.framework.kernel_filter_and_score_terms import (
    AllocationTerm,
    BalanceTerm,
    FitTerm,
    LoadTerm,
    ScoreTerm,
)
from services.scheduler.kernels.argument_and_result_types import BatchOutcome, Fit, PodBatch
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.kernels.sequential_placement import place
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events.scheduling import Candidate, ClassEvaluated, Rejections

_KINDS = 16
"""Maximum number of distinct fit results of a class; combinations of two resources and the number of pods are fewer."""


class PredictedPlacement(NamedTuple):
    """A predicted placement.

    Attributes:
        row: of the node; score: its total.
        evaluated: the record of its class.
    """

    row: int
    score: int
    evaluated: ClassEvaluated


class VariantBatch:
    """A set of request variants in one cycle."""

    def __init__(self, active: ActivePlugins, pod_class: PodClass) -> None:
        """Computes the results that all of them share.

        Args:
            active: the plugins that apply to them.
            pod_class: one of them.
        """
        self._active = active
        self._pod_class = pod_class
        self._before: Int64 = active.unrejected.copy()
        result = np.zeros(len(self._before), np.int64)
        apply_filters(pod_class, self._before, result, active.filters, slice(0, active.snapshot.size))
        self._feasible = int((self._before == FEASIBLE).sum())
        self._rejected: tuple[Rejections, ...] = ()
        if self._feasible < active.alive:
            self._rejected = rejections(active.profile, pod_class, self._before, result)
        scorers = [plugin.name for plugin, _, _ in active.scorers]
        order = [name for name in active.order if name in active.constant or name in scorers]
        self._order = [
            (name, scorers.index(name) if name in scorers else -1, active.constant.get(name, 0)) for name in order
        ]
        self._is_arithmetic = self._is_predictable()

    def _is_predictable(self) -> bool:
        active, pod_class = self._active, self._pod_class
        if active.fit_filter is None or any(plugin.preferred_nodes(pod_class) for plugin in active.preferring):
            return False
        # A filter before the fit filter rejects a node for good; behind it, the recorded reason would differ.
        if any(index > active.fit_filter[0] or not plugin.node_only for index, plugin, _ in active.filters):
            return False
        summed_scorers, _, others = active.parts(pod_class)
        return not others and all(
            state.can_predict(pod_class) and state.unpredictable(pod_class) is None for _, _, state in summed_scorers
        )

    def is_arithmetic(self) -> bool:
        """Returns True when all results for the classes, and the changes by their pods, are arithmetic or equal."""
        if not self._is_arithmetic:
            return False
        active, every = self._active, slice(0, self._active.snapshot.size)
        return not any(
            state.filter(self._pod_class, every) is not None for _, _, state in active.cross_node_filters
        ) and not any(
            state.scores(self._pod_class, active.unrejected == FEASIBLE) is not None
            for _, _, state in active.cross_node_scorers
        )

    def place(self, pod_classes: Sequence[PodClass], hashes: Sequence[np.uint64]) -> list[PredictedPlacement]:
        """Places pods one after the other; `is_arithmetic` must hold.

        Args:
            hashes: of their uids.

        Returns:
            The first of them, up to a pod without a node or with too many distinct fit results.
        """
        active, snapshot = self._active, self._active.snapshot
        terms = [active.parts(pod_class)[1] for pod_class in pod_classes]
        fits = [fit for pod_class in pod_classes if (fit := active.fit_term(pod_class)) is not None]
        outcome = _outcome(len(pod_classes), len(terms[0]))
        done: int = place(
            self._before,
            snapshot.table.hashes[: snapshot.size],
            active.base,
            snapshot.amounts(),
            Fit(fits[0][0], *fits[0][1]),
            *layout_of(terms[0]),
            self._batch(pod_classes, hashes, [fit for _, fit in fits], terms),
            outcome,
        )
        return [
            PredictedPlacement(
                outcome.rows.item(number, 0),
                outcome.totals.item(number, 0),
                self._evaluated(pod_classes[number], *found),
            )
            for number, found in enumerate(zip(*(array[:done].tolist() for array in outcome), strict=True))
        ]

    def _batch(
        self,
        pod_classes: Sequence[PodClass],
        hashes: Sequence[np.uint64],
        fits: Sequence[FitTerm],
        terms: Sequence[Sequence[tuple[int, ScoreTerm]]],
    ) -> PodBatch:
        """Lays out the amounts in which the classes differ."""
        snapshot = self._active.snapshot
        taken = [
            [
                (column, size)
                for column, size in snapshot.table.vector(pod_class)
                if column < snapshot.requested.shape[1]
            ]
            for pod_class in pod_classes
        ]
        return PodBatch(
            hashes=np.array(hashes, np.uint64),
            columns=np.array([column for column, _ in taken[0]], np.int64),
            amounts=_table([[size for _, size in pairs] for pairs in taken]),
            nonzero_assigned=_table(
                [[each.nonzero_assigned.get(name, 0) for name in ("cpu", "memory")] for each in pod_classes]
            ),
            fit_sizes=_table([fit.sizes for fit in fits]),
            allocation_requests=_table(
                [
                    [size for _, term in each if isinstance(term, AllocationTerm) for size in term.requested]
                    for each in terms
                ]
            ),
            balance_requests=_table(
                [
                    [size for _, term in each if isinstance(term, BalanceTerm) for size in term.requested]
                    for each in terms
                ]
            ),
            load_incoming=_table(
                [[size for _, term in each if isinstance(term, LoadTerm) for size in term.incoming] for each in terms]
            ),
        )

    def _evaluated(
        self,
        pod_class: PodClass,
        rows: list[int],
        totals: list[int],
        shares: list[list[int]],
        kinds: list[int],
        counts: list[int],
    ) -> ClassEvaluated:
        names, rejected, feasible = self._active.snapshot.table.names, self._rejected, self._feasible
        if counts[0] and self._active.fit_filter is not None:
            plugin = self._active.profile.filters[self._active.fit_filter[0]]
            short = {kind: nodes for kind, nodes in zip(kinds, counts, strict=True) if nodes}
            rejected += listed(plugin, pod_class, Counter(short))
            feasible -= sum(counts)
        return ClassEvaluated(
            nodes=self._active.alive,
            feasible=feasible,
            rejected=rejected,
            best=tuple(
                Candidate(
                    node=names[row],
                    score=totals[rank],
                    plugin_scores={name: shares[at][rank] if at >= 0 else same for name, at, same in self._order},
                )
                for rank, row in enumerate(rows)
                if row >= 0
            ),
        )


def _outcome(pods: int, terms: int) -> BatchOutcome:
    rows, totals = np.full((pods, BEST), -1, np.int64), np.zeros((pods, BEST), np.int64)
    kinds, counts = np.zeros((2, pods, _KINDS), np.int64)
    return BatchOutcome(rows, totals, np.zeros((pods, terms, BEST), np.int64), kinds, counts)


def _table(rows: Sequence[Sequence[int] | Int64]) -> Int64:
    """Returns [pods, numbers]."""
    return np.array(rows, np.int64).reshape(len(rows), -1)
