"""Places and refuses single pods within a cycle, and records the evaluations of their classes in its plan.

Everything that one pod needs: its evaluated class, the best node, the resources below the node, what has to be
prepared there, and, without a node, the evictions that make capacity for it.

Source: spec/scheduler-core.md 1.5, 1.8, 2.7.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.reservation_holds import left_beside
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import (
    PlacedPod,
    PlanInProgress,
    PlanMark,
    PlannedHold,
    RefusedPod,
)
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.evaluation_records_shared_by_class import EvaluatedClass
from services.scheduler.cycle.look_ahead_with_one_more_pod import MIN_PODS
from services.scheduler.cycle.planned_starts import PlannedStarts
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, Nomination, least_first
from services.scheduler.framework.post_filter import Mark, PostFilterCycle, PostFilters, RefusedByNodes
from services.scheduler.framework.pre_bind_preparation import Preparation
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.state.pod_attempts_and_refusals import FOR_VOLUMES
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.reservation import pre_allocated_pods
from shared.events.scheduling import ClassEvaluated

MIN_RUN = 4
"""Minimum number of equal pods behind a placed one that are placed together."""

MAX_FUTILE = 3
"""Number of fruitless runs of a class after which its pods are placed one by one: they go to the same few nodes."""


class PlacementMark(NamedTuple):
    """A point of the cycle to which it can be undone."""

    transaction: Mark
    plan: PlanMark
    nominated: tuple[PodRecord, ...]


class PodPlacement:
    """The steps of a cycle for single pods.

    Attributes:
        plan: the decisions so far.
        transaction: the nodes with the steps of the cycle.
        classes: the classes that are evaluated at present.
        remaining: class -> number of pods that are still to be tried.
        preemptions: nominations and victims of the cycle.
        starts: the planned starts of units that wait.
        evaluated: number of classes evaluated so far, against the budget of placements.
    """

    def __init__(self, cache: CycleInputs, now_ns: int) -> None:
        self._cache = cache
        self.plan = PlanInProgress()
        self.transaction = CycleTransaction(cache, now_ns)
        self.classes: dict[PodClass, EvaluatedClass] = {}
        self.remaining: Counter[PodClass | None] = Counter()
        self.evaluated = 0
        self.preemptions = CyclePreemptions(cache, cache.nominated)
        self.starts = PlannedStarts(cache, self.transaction, now_ns)
        self._post_filters = PostFilters(
            PostFilterCycle(cache, cache.nominated, self.preemptions, self.transaction.placed)
        )
        self._nominated: list[PodRecord] = []  # pods with victims that still run, lowest priority first

    def expect_nominated(self, nominated: Iterable[PodRecord]) -> None:
        """Keeps capacity for nominated pods that this cycle does not try, until it is counted on their nodes."""
        self._nominated = least_first(nominated)

    def mark(self) -> PlacementMark:
        """Returns the present point of the cycle."""
        return PlacementMark(self.transaction.mark(), self.plan.mark(), tuple(self._nominated))

    def undo(self, mark: PlacementMark, pods: Iterable[PodRecord]) -> None:
        """Undoes all steps and decisions behind the mark.

        Args:
            pods: those that were tried since; records of their classes may be undone.
        """
        self.transaction.undo(mark.transaction)
        self.plan.undo(mark.plan)
        self._nominated = list(mark.nominated)
        for pod in pods:
            if pod.pod_class in self.classes:
                self.classes[pod.pod_class].forget_records()

    # classes

    def class_of(self, pod_class: PodClass, *, looks_ahead: bool = True) -> EvaluatedClass:
        """Returns a class with its evaluation, which is made on the first call.

        Args:
            looks_ahead: False where its pods are not placed by their scores.
        """
        class_ = self.classes.get(pod_class)
        if class_ is None:
            evaluation = self.transaction.evaluation(self.profile(pod_class), pod_class)
            class_ = self.classes[pod_class] = EvaluatedClass(evaluation, is_prepared=self.is_prepared(pod_class))
            self.evaluated += 1
            if looks_ahead and self.remaining[pod_class] >= MIN_PODS and not evaluation.none_feasible():
                evaluation.look_ahead(self.transaction.snapshot)
        return class_

    def record_evaluation(self, class_: EvaluatedClass, row: int, pod_hash: np.uint64) -> None:
        """Records the evaluation of a class, unless the last record still holds for a pod on the node."""
        if class_.recorded_at < 0 or (class_.passed is not None and not class_.passed[row]):
            # A placement of this cycle may have made nodes feasible since, as by a required pod affinity.
            evaluation = class_.evaluation
            class_.recorded_at = self.plan.evaluated(evaluation.record(pod_hash))
            class_.passed = evaluation.by == FEASIBLE if self.remaining[evaluation.pod_class] > 1 else None

    def _record_refusals(self, class_: EvaluatedClass, pod_hash: np.uint64) -> None:
        """Records the rejections of all nodes for the class, unless the last record still holds."""
        evaluation, recorded = class_.evaluation, class_.refused_by
        if (
            class_.refused_at >= 0
            and recorded is not None
            and np.array_equal(evaluation.by, recorded[0])
            and np.array_equal(evaluation.result, recorded[1])
        ):
            return
        class_.refused_at = self.plan.evaluated(evaluation.record(pod_hash))
        class_.refused_by = evaluation.by.copy(), evaluation.result.copy()

    def active_of(self, pod_class: PodClass) -> ActivePlugins:
        """Returns the plugins that apply to a class and its request variants."""
        return self.transaction.active(self.profile(pod_class)).of(pod_class)

    def profile(self, pod_class: PodClass) -> Profile:
        """Returns the profile of the class."""
        return self._cache.profiles[pod_class.scheduler]

    # nodes

    def choose(self, evaluation: ClassEvaluation, pod: PodRecord, pod_hash: np.uint64) -> tuple[int, dict[str, str]]:
        """Returns the row of the best node with the resources to reserve, and the allocation there; -1 without one.

        The node that the pod is nominated for takes precedence over every score if it is feasible.
        """
        if pod.nominated:
            row = self._cache.table.rows.get(self.preemptions.node_of(pod), -1)
            if (
                0 <= row < self.transaction.snapshot.size
                and evaluation.total[row] >= 0
                and (not self.starts.plans or self._admits(evaluation, pod, row))
            ):
                allocation = self.transaction.reserve(evaluation, row)
                if allocation is not None:
                    return row, allocation
        while (row := evaluation.choose(pod_hash)) >= 0:
            if self.starts.plans and not self._admits(evaluation, pod, row):
                continue
            allocation = self.transaction.reserve(evaluation, row)
            if allocation is not None:
                return row, allocation
        return -1, {}

    def _admits(self, evaluation: ClassEvaluation, pod: PodRecord, row: int) -> bool:
        """Returns True where a pod on the node moves no planned start; otherwise the evaluation leaves the node out."""
        if self.starts.admits(pod, evaluation.pod_class, row):
            return True
        evaluation.keep(row, self.starts.kept_from(pod, row))
        return False

    def place(
        self,
        pod: PodRecord,
        pod_class: PodClass,
        row: int,
        score: int,
        class_index: int,
        allocation: dict[str, str],
        *,
        unit: int = 0,
        preparation: Preparation | None = None,
    ) -> None:
        """Places a pod on the node of a row, which is held for it while something is prepared."""
        node = self._cache.table.names[row]
        hold = None if preparation is None else PlannedHold(FOR_VOLUMES, "", (preparation,))
        self.plan.decisions.append(PlacedPod(pod, pod_class, node, score, class_index, allocation, unit, hold))
        self.transaction.place(pod, self._counted(pod_class, allocation), row, allocation)

    def _counted(self, pod_class: PodClass, allocation: Mapping[str, str]) -> PodClass:
        """Returns the class by which a pod counts: a Reservation with what is left beside the pods that it takes over."""
        taken = pre_allocated_pods(allocation)
        if not taken:
            return pod_class
        candidates = self.transaction.snapshot.holds.candidates
        return left_beside(pod_class, [candidates[uid].pod_class for uid, _ in taken])

    def place_run(
        self, pods: Sequence[PodRecord], pod_class: PodClass, class_: EvaluatedClass, *, unit: int = 0
    ) -> int:
        """Places equal pods as far as predicted, with the result of placing each in its turn; returns how many."""
        rows, totals = class_.evaluation.run([name_hash(each.uid) for each in pods])
        count = self.transaction.place_all(pods[: len(rows)], pod_class, rows) if rows else 0
        class_.futile += count < MIN_RUN
        names = self._cache.table.names
        self.plan.decisions += [
            PlacedPod(each, pod_class, names[row], total, class_.recorded_at, {}, unit)
            for each, row, total in zip(pods[:count], rows[:count], totals[:count], strict=True)
        ]
        return count

    def refuse(self, pod: PodRecord, class_: EvaluatedClass, pod_hash: np.uint64) -> None:
        """Refuses a pod that no node admits; others may be evicted for it."""
        self._record_refusals(class_, pod_hash)
        nomination = self._preempt(pod, class_.evaluation, pod_hash)
        loses = pod.uid in self.preemptions.lost
        self.plan.decisions.append(RefusedPod(pod, class_.refused_at, nomination, loses_nomination=loses))

    def alive(self) -> int:
        """Returns the number of nodes."""
        return int(self._cache.table.alive.sum())

    def unreadable(self) -> ClassEvaluated:
        """Returns the evaluation of a class that cannot be read."""
        return ClassEvaluated(nodes=self.alive(), feasible=0)

    # preparation

    def is_prepared(self, pod_class: PodClass) -> bool:
        """Returns True where a plugin may request something before pods of the class are bound, volumes for example."""
        states = self.transaction.plugin_states
        return any(states[plugin].applies_to(pod_class) for plugin in self.profile(pod_class).pre_bind)

    def prepare(self, pod_class: PodClass, row: int, profile: Profile) -> Preparation | None:
        """Returns the writes that a pod needs before it can be bound to the node."""
        for plugin in profile.pre_bind:
            preparation = self.transaction.prepare(plugin, pod_class, row)
            if preparation is not None:
                return preparation
        return None

    # preemption

    def count_nominated_before(self, pod_class: PodClass) -> None:
        """Counts the nominated pods of the same or a higher priority on their nodes."""
        while (
            self._nominated
            and (first := self._nominated[-1]).pod_class is not None
            and first.pod_class.priority >= pod_class.priority
        ):
            self._nominated.pop()
            self.count_nominated(first, first.pod_class, first.nominated)

    def count_nominated(self, pod: PodRecord, pod_class: PodClass, node: str) -> None:
        """Counts a nominated pod on its node, with the allocation that it will get there."""
        row = self._cache.table.rows.get(node, self.transaction.snapshot.size)
        if row < self.transaction.snapshot.size:
            leaving = self.preemptions.leaving_from(row, pod_class.priority)
            self.transaction.nominate(pod, pod_class, self.profile(pod_class), row, leaving)

    def _fits(self, pod: PodRecord, profile: Profile, pod_class: PodClass, row: int) -> bool:
        """Returns True when every filter admits the pod to the node in its present state, and no planned start moves."""
        return self.transaction.fits(profile, pod_class, row) and (
            not self.starts.plans or self.starts.admits(pod, pod_class, row)
        )

    def _preempt(self, pod: PodRecord, evaluation: ClassEvaluation, pod_hash: np.uint64) -> Nomination | None:
        """Runs the PostFilter plugins, and counts the pod on the node that it is nominated for."""
        pod_class, profile = evaluation.pod_class, evaluation.profile
        nomination = None
        if profile.post_filters and all(plugin.may_preempt(pod_class) for plugin in profile.filters):
            steps = self.transaction
            fits = partial(self._fits, pod, profile, pod_class)
            refused = RefusedByNodes(pod, pod_class, pod_hash, evaluation.resolvable, fits, steps)
            nomination = self._post_filters.after_filters(profile.post_filters, refused)
        if node := self.preemptions.node_of(pod):
            self.count_nominated(pod, pod_class, node)
        return nomination
