"""Base class of a plugin's working copy for one cycle.

In a cycle, pods are placed one after the other; `PluginCycleState.place` counts each of them. Which of the abilities
below a plugin has is declared in its PluginSpec, and only those are used. All filter results and scores are integers
as upstream's.

Steps are undone strictly in reverse order. Each has an exact inverse, in integers: after it, all arrays and all later
results are the same bit for bit.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import NOTHING_DRAWN, Drawn
from services.scheduler.framework.kernel_filter_and_score_terms import FitTerm, ScoreTerm
from services.scheduler.framework.pre_bind_preparation import Preparation
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord


class SparseScores(NamedTuple):
    """Scores of some rows; all others have 0.

    Attributes:
        rows: distinct ones.
        scores: [rows].
    """

    rows: Rows
    scores: Int64


def on_all_rows(found: "Int64 | SparseScores", size: int) -> Int64:
    """Returns the scores of all rows."""
    if not isinstance(found, SparseScores):
        return found
    scores = np.zeros(size, np.int64)
    scores[found.rows] = found.scores
    return scores


class PluginCycleState:
    """A plugin's working copy for one cycle. The defaults pass every node, score nothing and count nothing."""

    # States of other plugins (`joins`)

    def join(self, scheduler: str, others: Mapping[str, "PluginCycleState"]) -> None:
        """Gets the states of other plugins, before anything else is called.

        Args:
            scheduler: `schedulerName` of the profile.
            others: name of a plugin of this profile -> its state.
        """

    # Filter and score

    def applies_to(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False where the plugin passes all nodes, scores none and reserves nothing, at any time of the cycle.

        Classes that differ in amounts alone get the same response.
        """
        return True

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:  # noqa: ARG002
        """Filters nodes for a class of pods.

        Returns:
            [rows], 0 where the node passes, else a result that `Plugin.reasons` can read. None: all pass.
        """
        return None

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node, 0 where `filter` returns None. It is called after placements on the node."""
        results = self.filter(pod_class, np.array([row]))
        return 0 if results is None else int(results[0])

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:  # noqa: ARG002
        """Scores nodes: the higher the better. None: 0 for all of them.

        Returns:
            [rows], 0..100, or any scale that the `normalize` of the plugin brings there. The caller may change the
            array, unless the plugin is node-only.
        """
        return None

    def scores_class(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False where `score` is None for the class, and all that differ in amounts alone, at any time of the cycle."""
        return True

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node, 0 where `score` returns None."""
        scores = self.score(pod_class, np.array([row]))
        return 0 if scores is None else int(scores[0])

    # Fused kernels

    def fit_term(self, pod_class: PodClass) -> FitTerm:
        """Describes `filter` for the fused kernel, of a plugin whose spec declares `fit_term`."""
        raise NotImplementedError

    def score_term(self, pod_class: PodClass) -> ScoreTerm | None:  # noqa: ARG002
        """Describes `score` for the fused kernel; None: `score` has to be called."""
        return None

    def unpredictable(self, pod_class: PodClass) -> Bools | None:  # noqa: ARG002
        """bool[all rows]: nodes that neither `score_term` nor `after_one_more` describes; None: none.

        `filter`, `score` and `reserve` are called for them after each placement. It stays the same during a cycle.
        """
        return None

    # Placements of the cycle (`counts_placements`) and removals for preemption (`counts_removals`)

    def counts(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False where pods of the class change nothing that the plugin counts, at any time of the cycle.

        All pods that the cycle has placed and removed are in `CycleSnapshot.pod_changes` too.
        """
        return True

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        """Counts a pod of the class on the node, for the pods that come after it in the cycle."""

    def place_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> None:
        """Counts equal pods, each on another node: the first pods of the last call of `count_predicted`, at most its result."""
        for pod, row in zip(pods, rows, strict=True):
            self.place(pod, pod_class, row)

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        """Undoes the last `place` that is not undone yet; a `place_all` is undone pod by pod, the last one first."""
        raise NotImplementedError(f"{type(self).__name__} counts placements, but undoes none")

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:
        """Takes a pod that ran when the cycle began off its node (-1), or puts it back (+1).

        Args:
            terminating: it is being deleted.
        """

    def undo_move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:
        """Undoes the last `move` that is not undone yet, with the same arguments."""
        self.move(pod_class, row, terminating=terminating, sign=-sign)

    # Capacity that a cycle adds to nodes (`keeps_capacity`)

    def overlay(self, rows: Int64, deltas: Mapping[str, Int64]) -> None:
        """Changes amounts as if the nodes' allocatable had changed so.

        Args:
            rows: distinct ones.
            deltas: resource -> [rows], the amounts to add.
        """

    def undo_overlay(self) -> None:
        """Undoes the last `overlay` that is not undone yet."""
        raise NotImplementedError(f"{type(self).__name__} keeps capacity, but undoes no change of it")

    # Look-ahead

    def can_predict(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True where `after_one_more` has a result for the class and for all that differ from it in amounts alone."""
        return False

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> "PluginCycleState | None":  # noqa: ARG002
        """The state with one more pod of the class on each node; None where that cannot be predicted.

        It need not hold for nodes that are `unpredictable`. A plugin that reserves does so on these alone.
        `snapshot` is `CycleSnapshot.after`. A plugin that neither filters nor scores a class now is taken to do
        neither after any number of its pods.
        """
        return None

    def matched_prediction(self) -> bool:
        """Returns True where the pod that was placed last changed its node as `after_one_more` predicts."""
        return True

    def count_predicted(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:  # noqa: ARG002
        """The number of equal pods, from the first on, that would change their nodes as `after_one_more` predicts."""
        return len(rows)

    # Cross-node plugins (`cross_node`): these score by `scores`, not by `score`

    def revision(self, pod_class: PodClass) -> int:  # noqa: ARG002
        """A number that changes whenever a step, or its undoing, may have changed `filter` or `scores` for the class."""
        return 0

    def ignores_own_placements(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True where pods of the class change neither the filter results nor the scores for the class."""
        return True

    def scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | SparseScores | None:  # noqa: ARG002
        """Scores nodes against the feasible ones. None: 0 for all of them.

        Args:
            feasible: bool[all rows].

        Returns:
            [all rows], 0..100 where feasible, anything elsewhere.
        """
        return None

    # Reservations (`reserves`)

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:  # noqa: ARG002
        """Chooses the allocation of a pod of the class on the node, as annotations; a filter result where none is possible."""
        return {}

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:
        """Counts an allocation, chosen by the plugin of any profile, for the pods that come after it in the cycle."""

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:
        """Undoes the last `assume` that is not undone yet, with the same arguments."""

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Frees the allocation of a pod that ran when the cycle began (-1), or counts it again (+1).

        Each is the inverse of the other.
        """

    # Reservations of other pods' capacity (`lifts_holds`)

    def usable_holds(self, pod_class: PodClass) -> Mapping[str, int]:  # noqa: ARG002
        """Returns the Reservations that one more pod of the class may use at present: uid -> row of its node."""
        return {}

    def drawn(self, pod_class: PodClass, row: int) -> Drawn:  # noqa: ARG002
        """Returns which of the lifted Reservations of a feasible node the next pod of the class in focus uses."""
        return NOTHING_DRAWN

    # Preparation (at the PreBind point)

    def prepare(self, pod_class: PodClass, row: int) -> Preparation | None:  # noqa: ARG002
        """Requests what the pod needs before it can be bound to the node; None where nothing is missing."""
        return None

    def undo_prepare(self, preparation: Preparation) -> None:
        """Undoes the last `prepare` with a result that is not undone yet; filter results of any node may change."""
        raise NotImplementedError(f"{type(self).__name__} prepares, but undoes nothing")
