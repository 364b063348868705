"""One class of pods against all nodes, by every way in which the scheduler evaluates it.

A cycle sums up scores in fused compiled passes, calls other plugins for all nodes at once, re-evaluates single nodes
after a placement, and places pods of similar classes in one compiled sequence. The results must not depend on the way:
a case in which they do fails.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cli.parity.runners.scheduler.reason_words import upstream_text
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.joint_placement_of_similar_classes import VariantBatch
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.plugin_base import Plugin, normalized
from services.scheduler.framework.plugin_extension_points import on_all_rows
from services.scheduler.framework.profile import Profile, Scorer
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events import Draft
from shared.events.scheduling import CycleDecided, PodPlaced

Scores = Mapping[str, Mapping[str, int]]
"""Plugin -> node -> weighted score; a plugin without a score for the class is absent."""


class Disagreement(Exception):
    """Two ways of the same evaluation differ."""


def agree(about: str, first: Any, *others: Any) -> None:
    """Requires equal results.

    Raises:
        Disagreement: one differs from the first.
    """
    for other in others:
        if other != first:
            raise Disagreement(f"{about}: {first!r} one way, {other!r} the other")


class Refusal(NamedTuple):
    """A node that one filter rejects.

    Attributes:
        unresolvable: preemption cannot help: upstream's UnschedulableAndUnresolvable.
        reasons: texts, sorted.
    """

    unresolvable: bool
    reasons: list[str]

    def status(self) -> dict[str, Any]:
        """The recorded shape."""
        code = "UnschedulableAndUnresolvable" if self.unresolvable else "Unschedulable"
        return {"code": code, "reasons": self.reasons}


class Decided(NamedTuple):
    """A cycle of one pod.

    Attributes:
        evaluation: how the nodes stand once those that have nothing to give are rejected.
        placed: the placement; None where no node was found.
    """

    evaluation: ClassEvaluation
    placed: PodPlaced | None


class Evaluation:
    """A class at one instant. It reserves nothing, so any number of evaluations see the same nodes.

    Attributes:
        pod_class: the class.
        transaction: the nodes of a cycle that begins now.
    """

    def __init__(self, cache: CycleInputs, pod_class: PodClass, now_ns: int) -> None:
        self.pod_class = pod_class
        self.transaction = CycleTransaction(cache, now_ns)
        self._table = cache.table
        self._size = cache.table.size

    def evaluate(self, filters: Sequence[Plugin], scorers: Sequence[Plugin]) -> ClassEvaluation:
        """Runs the fused evaluation by some of the plugins, each score with weight 1."""
        return self.by_profile(Profile("", filters, [Scorer(plugin, 1) for plugin in scorers]))

    def by_profile(self, profile: Profile) -> ClassEvaluation:
        """Runs the fused evaluation by a profile; Reservations that its filter knows are lifted as they are for it."""
        self.transaction.focus(profile, self.pod_class)
        return ClassEvaluation(
            ActivePlugins(profile, self.transaction.plugin_states, self.transaction.snapshot),
            self._table,
            self.pod_class,
        )

    def names(self, rows: Int64) -> list[str]:
        """Returns the names of nodes by their rows."""
        return [self._table.names[row] for row in rows.tolist()]

    def refusals(self, plugin: Plugin) -> dict[str, Refusal]:
        """Returns node -> refusal, for each node that one filter rejects.

        Raises:
            Disagreement: all nodes at once, the fused pass, and single nodes differ.
        """
        state, pod_class, evaluation = (
            self.transaction.plugin_states[plugin],
            self.pod_class,
            self.evaluate((plugin,), ()),
        )
        found = state.filter(pod_class, slice(0, self._size))  # the evaluation has put the class into focus
        results: dict[str, int] = {}
        for row in self._alive():
            fused = int(evaluation.result[row]) if evaluation.by[row] >= 0 else 0
            agree(
                f"{plugin.name} filters {self._table.names[row]}",
                fused,
                0 if found is None else int(found[row]),
                state.filter_at(pod_class, row),
            )
            if fused:
                results[self._table.names[row]] = fused
        return {node: self.refusal(plugin, result) for node, result in results.items()}

    def refusal(self, plugin: Plugin, result: int) -> Refusal:
        """Returns the meaning of a filter result of a plugin for the class."""
        reasons = sorted(upstream_text(reason) for reason in plugin.reasons(self.pod_class, result))
        return Refusal(plugin.unresolvable(self.pod_class, result), reasons)

    def scores(self, evaluation: ClassEvaluation) -> Scores:
        """Returns each plugin's part of the totals of the feasible nodes, as the cycle would record it.

        Raises:
            Disagreement: the fused pass and the plugin alone differ, or the parts do not add up to the total.
        """
        rows = evaluation.feasible().tolist()
        candidates = evaluation.candidates(rows)
        for candidate in candidates:
            agree(f"total of {candidate.node}", candidate.score, sum(candidate.plugin_scores.values()))
        scores: dict[str, dict[str, int]] = {}
        for scorer in evaluation.profile.scorers if rows else ():
            name = scorer.plugin.name
            fused = {c.node: c.plugin_scores[name] for c in candidates if name in c.plugin_scores}
            alone = self._alone(scorer.plugin, evaluation.by == FEASIBLE)
            expected = (
                {} if alone is None else {self._table.names[row]: int(alone[row]) * scorer.weight for row in rows}
            )
            agree(f"{name} scores", fused, expected)
            if fused:
                scores[name] = fused
        return scores

    def in_a_round(self, profile: Profile, uid: str, drafts: Sequence[Draft]) -> Decided:
        """Compares the evaluation with the cycle that tried the pod alone, and returns the outcome.

        Raises:
            Disagreement: its record is not that of the evaluation, or not that of the compiled sequence.
        """
        pod_hash, evaluation = name_hash(uid), self.by_profile(profile)
        sequence = self._in_sequence(profile, pod_hash)
        if sequence is not None:
            agree("compiled sequence", evaluation.record(pod_hash), sequence)
        given: dict[str, str] | None = None
        while given is None and (row := evaluation.choose(pod_hash)) >= 0:
            given = self.transaction.reserve(evaluation, row)
        decided = drafts[0].event
        assert isinstance(decided, CycleDecided), "a cycle's first event"
        agree("pods of the cycle", [uid], [outcome.pod_uid for outcome in decided.pods])
        agree("record of the cycle", evaluation.record(pod_hash), decided.classes[decided.pods[0].class_index])
        placed = next((draft.event for draft in drafts if isinstance(draft.event, PodPlaced)), None)
        expected = None if given is None else (self._table.names[row], given)
        agree("placement", expected, placed and (placed.node, placed.annotations))
        return Decided(evaluation, placed)

    def _in_sequence(self, profile: Profile, pod_hash: np.uint64) -> Any:
        active = ActivePlugins(profile, self.transaction.plugin_states, self.transaction.snapshot).of(self.pod_class)
        batch = VariantBatch(active, self.pod_class)
        if not batch.is_arithmetic():
            return None
        found = batch.place([self.pod_class], [pod_hash])
        return found[0].evaluated if found else None

    def _alone(self, plugin: Plugin, feasible: Bools) -> Int64 | None:
        """Returns [rows]: one plugin's scores, normalised over the feasible nodes; None without any."""
        state, every = self.transaction.plugin_states[plugin], slice(0, self._size)
        if plugin.cross_node:
            found = state.scores(self.pod_class, feasible)
            return None if found is None else on_all_rows(found, self._size)
        raw = state.score(self.pod_class, every)
        for row in self._alive():
            node_alone = state.score_at(self.pod_class, row)
            agree(f"{plugin.name} scores {self._table.names[row]}", 0 if raw is None else int(raw[row]), node_alone)
        return None if raw is None else normalized(raw, int(raw[feasible].max(initial=0)), plugin.normalize)

    def _alive(self) -> list[int]:
        return np.flatnonzero(self._table.alive[: self._size]).tolist()
