"""One scheduling cycle: a batch of waiting pods, each placed as if it were alone.

`plan_cycle` is a pure function of the State (through its cache), the configuration in it, and `now`. It changes
neither; the events of the plan do, once they are appended. They record enough to explain the cycle and to decide it
again.

Source: architecture.md, "What a scheduling cycle records"; spec/scheduler-core.md 1.4, 1.5.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.batch_lookahead import BatchLookahead
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.plan import CyclePlan, PlacedPod, PlanInProgress, RefusedPod
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.cycle.predicted_evaluation import MIN_PODS
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.cycle_preemptions import CyclePreemptions, Nomination, least_first
from services.scheduler.framework.post_filter import PostFilterCycle, PostFilters, RefusedByNodes
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import UNIT_NOT_PLACED
from services.scheduler.framework.writes_before_binding import Preparation
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.tiles import Int64
from services.scheduler.queue.active_queue import FRESH
from services.scheduler.queue.queueing_hints import QueueingHints
from services.scheduler.queue.units import Unit, in_turn, turn
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from shared.events import Draft
from shared.events.scheduling import ClassEvaluated, Rejections

MIN_RUN = 4
"""Minimum number of equal pods behind a placed one that are placed together."""

MAX_FUTILE = 3
"""Number of fruitless runs of a class after which its pods are placed one by one: they go to the same few nodes."""

MAX_EVALUATED_NODES = 2_000_000
"""Maximum number of nodes that a cycle evaluates, summed over its classes, some 25 ns each: it must not block the
service.
"""

MAX_REQUEUE_NODES = 2_000_000
"""Maximum number of nodes that a cycle evaluates to decide which refused pods to requeue, while other pods wait. It has
no part in the budget of placements: refused pods delay no others.
"""

CLASS_COST_NODES = 1000
"""Fixed cost of a class, in nodes."""


def decide(cache: CycleInputs, now_ns: int, batch_size: int) -> tuple[Draft, ...]:
    """Decides a cycle that charges nothing; returns its events, none when no pod may be tried."""
    return drafts_of(plan_cycle(cache, now_ns, batch_size))


def plan_cycle(cache: CycleInputs, now_ns: int, batch_size: int) -> CyclePlan:
    """Tries waiting pods, up to the unit that makes `batch_size` of them."""
    cache.settle()
    cache.queue.advance(now_ns)
    number = cache.view.cycle + 1
    if not cache.queue:
        return PlanInProgress().finished(number, cache.profiles)
    cycle = _Cycle(cache, now_ns)
    hints = QueueingHints(cache, cache.queue, cache.profiles)
    line = sorted(
        cache.queue.choose(batch_size, hints.to_requeue(cycle.feasible, cycle.max_requeued_classes())), key=turn
    )
    cycle.expect(line)
    for unit in in_turn(line, cycle.has_refused):
        if cycle.is_full(unit):
            break
        cycle.schedule(unit)
        cycle.drop_if_last(unit)
    return cycle.plan.finished(number, cache.profiles)


class _Class:
    """A class of equal pods within a cycle, and the indices of the records of its evaluation.

    `recorded_at` is the record for placed pods, `refused_at` that for refused ones. A record also holds for a later pod
    while it is true for it: its node had passed, or no filter result has changed.
    """

    __slots__ = ("evaluation", "futile", "is_prepared", "passed", "recorded_at", "refused_at", "refused_by")

    def __init__(self, evaluation: ClassEvaluation, *, is_prepared: bool) -> None:
        self.evaluation = evaluation
        self.is_prepared = is_prepared  # a plugin may request something before its pods are bound
        self.recorded_at = -1
        self.refused_at = -1
        self.futile = 0
        self.passed: NDArray[np.bool_] | None = None  # rows that passed as recorded at `recorded_at`
        self.refused_by: tuple[Int64, Int64] | None = None  # filters and their results as recorded at `refused_at`

    def forget_records(self) -> None:
        """Drops the indices of records that are undone."""
        self.recorded_at = self.refused_at = -1
        self.passed = self.refused_by = None


class _Cycle:
    """A cycle in progress.

    Attributes:
        plan: the decisions so far.
    """

    def __init__(self, cache: CycleInputs, now_ns: int) -> None:
        self._cache = cache
        self.plan = PlanInProgress()
        self._transaction = CycleTransaction(cache, now_ns)
        self._snapshot = self._transaction.snapshot
        self._classes: dict[PodClass, _Class] = {}
        self._remaining: Counter[PodClass | None] = Counter()
        self._evaluated = 0
        self._units = 0  # of several pods, so far
        self._line: Sequence[Unit] = ()  # the units in their order, if none is refused
        self._places: dict[str, int] = {}  # uid of a unit's first pod -> place in the line
        self._ahead = BatchLookahead(lambda pod_class: self._transaction.active(self._profile(pod_class)).of(pod_class))
        self._placed_ahead: deque[PodRecord] = deque()  # pods of a run that are placed before their turn
        self._preemptions = CyclePreemptions(cache, cache.nominated)
        self._post_filters = PostFilters(
            PostFilterCycle(cache, cache.nominated, self._preemptions, self._transaction.placed)
        )
        self._nominated: list[PodRecord] = []  # pods with victims that still run, lowest priority first

    def expect(self, line: Sequence[Unit]) -> None:
        """Notes the units to try, in their order if none is refused."""
        self._line = line
        self._remaining.update(pod.pod_class for unit in line for pod in unit.pods)
        for pod_class in [each for each in self._classes if each not in self._remaining]:
            # evaluated for the queueing hints alone: an evaluation takes ten numbers a node
            del self._classes[pod_class]
        self._places = {unit.pods[0].uid: place for place, unit in enumerate(line)}
        if self._cache.nominated:
            coming = {pod.uid for unit in line for pod in unit.pods}
            self._nominated = [pod for pod in least_first(self._cache.nominated.values()) if pod.uid not in coming]

    def feasible(self, pod_class: PodClass) -> NDArray[Any]:
        """Returns the rows of the nodes that would admit a pod of the class."""
        evaluated = self._evaluated
        feasible = self._class(pod_class).evaluation.feasible()
        self._evaluated = evaluated  # the budget of placements is for other classes
        return feasible

    def max_requeued_classes(self) -> int:
        """Returns how many refused classes the cycle may evaluate before it chooses its pods."""
        return max(1, MAX_REQUEUE_NODES // (self._snapshot.size + CLASS_COST_NODES))

    def is_full(self, unit: Unit) -> bool:
        """Returns True when the unit is left to the next cycle: it has a new class, and this cycle has evaluated
        enough.
        """
        return (
            any(pod.pod_class not in self._classes for pod in unit.pods)
            and bool(self.plan.decisions)
            and (self._evaluated + 1) * (self._snapshot.size + CLASS_COST_NODES) > MAX_EVALUATED_NODES
        )

    def has_refused(self, unit: Unit) -> bool:
        """Returns True once the cycle has refused a pod of a class of the unit."""
        classes = self._classes
        return any(pod.pod_class in classes and classes[pod.pod_class].refused_at >= 0 for pod in unit.pods)

    def drop_if_last(self, unit: Unit) -> None:
        """Drops the evaluations of classes of which no pod is left to try: they take ten numbers a node."""
        for pod in unit.pods:
            self._remaining[pod.pod_class] -= 1
            if not self._remaining[pod.pod_class] and pod.pod_class is not None:
                self._classes.pop(pod.pod_class, None)

    def schedule(self, unit: Unit) -> None:
        """Places all pods of the unit, each on its best node; or refuses all of them."""
        if len(unit.pods) > 1:
            self._schedule_group(unit)
        elif self._placed_ahead and self._placed_ahead[0] is unit.pods[0]:
            self._placed_ahead.popleft()
        else:
            self._schedule_pod(unit.pods[0], due=unit.due)

    # units of one pod

    def _schedule_pod(self, pod: PodRecord, *, due: bool) -> None:
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            self.plan.decisions.append(RefusedPod(pod, self.plan.evaluated(self._unreadable())))
            return
        if self._nominated:
            self._count_nominated_before(pod_class)
        if self._remaining[pod_class] == 1:
            predicted = self._ahead.next_placement(pod, self._transaction.changes, self._next_alone)
            if predicted is not None:
                self._evaluated += 1
                index = self.plan.evaluated(predicted.evaluated)
                self._place(pod, pod_class, predicted.row, predicted.score, index, {})
                return
        class_, pod_hash = self._class(pod_class), name_hash(pod.uid)
        evaluation = class_.evaluation
        evaluation.catch_up()
        if class_.refused_at >= 0 and not evaluation.none_feasible():
            class_.refused_at = -1  # a placement of this cycle satisfies its pod affinity
        if class_.refused_at >= 0:
            if due:  # else it waits on: the event has not helped its class
                self._refuse(pod, class_, pod_hash)
            return
        row, allocation = self._choose(evaluation, pod, pod_hash)
        if row < 0:
            class_.futile = MAX_FUTILE  # its other pods are put back, and pods of other classes may come between them
            self._refuse(pod, class_, pod_hash)
            return
        self._record_evaluation(class_, row, pod_hash)
        if class_.is_prepared and (preparation := self._prepare(pod_class, row, evaluation.profile)):
            self._wait_for(pod, preparation)
            return
        self._place(pod, pod_class, row, int(evaluation.total[row]), class_.recorded_at, allocation)
        if self._remaining[pod_class] > MIN_RUN and class_.futile < MAX_FUTILE:
            self._run_on(pod, pod_class, class_)

    def _run_on(self, pod: PodRecord, pod_class: PodClass, class_: _Class) -> None:
        """Places the equal pods that follow, as far as predicted; the result is that of placing each in its turn."""
        begin = end = self._places[pod.uid] + 1
        # Only FRESH pods: pods that this cycle puts back rank behind them, so none comes between the pods of the run.
        while end < len(self._line) and _is_plain(self._line[end], pod_class):
            end += 1
        if end - begin < MIN_RUN or class_.is_prepared:
            return
        pods = [unit.pods[0] for unit in self._line[begin:end]]
        rows, totals = class_.evaluation.run([name_hash(each.uid) for each in pods])
        count = self._transaction.place_all(pods[: len(rows)], pod_class, rows) if rows else 0
        class_.futile += count < MIN_RUN
        names, placed = self._cache.table.names, pods[:count]
        self.plan.decisions += [
            PlacedPod(each, pod_class, names[row], total, class_.recorded_at, {})
            for each, row, total in zip(placed, rows[:count], totals[:count], strict=True)
        ]
        self._placed_ahead.extend(placed)

    def _next_alone(self, pod: PodRecord) -> Iterator[PodRecord]:
        """Yields the pod and those behind it, as long as each is the only one of its class in the cycle and needs no
        special step.
        """
        left = MAX_EVALUATED_NODES // (self._snapshot.size + CLASS_COST_NODES) - self._evaluated
        for unit in islice(self._line, place := self._places[pod.uid], place + max(left, 0)):
            other = unit.pods[0]
            pod_class = other.pod_class
            if (
                len(unit.pods) > 1
                or pod_class is None
                or pod_class.fault
                or other.nominated
                or self._remaining[pod_class] != 1
                or pod_class in self._classes
                or self._is_prepared(pod_class)
            ):
                return
            yield other

    # units of several pods

    def _schedule_group(self, unit: Unit) -> None:
        """Places the pods of a unit one after the other, and undoes all of it when one of them has no node or has to be
        prepared. Such pods preempt none: victims of one pod would be evicted in vain where another has no node.
        """
        mark, planned, nominated = self._transaction.mark(), self.plan.mark(), self._nominated.copy()
        self._units += 1
        prepared: list[tuple[PodRecord, int]] = []
        failed: tuple[PodRecord, ClassEvaluated] | None = None
        for pod in unit.pods:
            found = self._place_member(pod)
            if isinstance(found, ClassEvaluated):
                failed = pod, found
                break
            if found is not None:
                prepared.append((pod, found))
        if failed is None and not prepared:
            return
        self._transaction.undo(mark)
        self.plan.undo(planned)
        self._nominated = nominated
        for pod in unit.pods:
            if pod.pod_class in self._classes:
                self._classes[pod.pod_class].forget_records()
        if failed is not None:
            self.plan.decisions.append(RefusedPod(failed[0], self.plan.evaluated(failed[1])))
        else:
            self._prepare_members(prepared)
        self._refuse_others(unit, self.plan.decisions[planned.decisions :])

    def _place_member(self, pod: PodRecord) -> ClassEvaluated | int | None:
        """Places a pod of a unit of several.

        Returns:
            The evaluation with the reasons if no node admits it; the row if it has to be prepared for the node.
        """
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            return self._unreadable()
        self._count_nominated_before(pod_class)
        class_, pod_hash = self._class(pod_class), name_hash(pod.uid)
        evaluation = class_.evaluation
        evaluation.catch_up()
        row, allocation = self._choose(evaluation, pod, pod_hash)
        if row < 0:
            return evaluation.record(pod_hash)
        self._record_evaluation(class_, row, pod_hash)
        preparation = self._prepare(pod_class, row, evaluation.profile) if class_.is_prepared else None
        score = int(evaluation.total[row])
        self._place(pod, pod_class, row, score, class_.recorded_at, allocation, unit=self._units)
        return None if preparation is None else row

    def _prepare_members(self, prepared: Sequence[tuple[PodRecord, int]]) -> None:
        """Requests the preparations of pods of a unit that fits as a whole."""
        for pod, row in prepared:
            assert pod.pod_class is not None, "it was placed"
            preparation = self._prepare(pod.pod_class, row, self._profile(pod.pod_class))
            if preparation is not None:
                self._wait_for(pod, preparation)

    def _refuse_others(self, unit: Unit, decisions: Sequence[PlacedPod | RefusedPod]) -> None:
        """Refuses the pods of a unit about which there is no decision: they wait for the first one that there is."""
        cause = decisions[0].pod
        decided = {each.pod.uid for each in decisions}
        nodes, plugin = self._alive(), unit.group.plugin if unit.group else ""
        rejected = Rejections(plugin=plugin, code=UNIT_NOT_PLACED, nodes=nodes, detail=cause.name)
        index = self.plan.evaluated(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
        self.plan.decisions += [RefusedPod(pod, index) for pod in unit.pods if pod.uid not in decided]

    # one pod

    def _choose(self, evaluation: ClassEvaluation, pod: PodRecord, pod_hash: np.uint64) -> tuple[int, dict[str, str]]:
        """Returns the row of the best node with the resources to reserve, and the allocation there; -1 without one.

        The node that the pod is nominated for takes precedence over every score if it is feasible.
        """
        if pod.nominated:
            row = self._cache.table.rows.get(self._preemptions.node_of(pod), -1)
            if 0 <= row < self._snapshot.size and evaluation.total[row] >= 0:
                allocation = self._transaction.reserve(evaluation, row)
                if allocation is not None:
                    return row, allocation
        while (row := evaluation.choose(pod_hash)) >= 0:
            allocation = self._transaction.reserve(evaluation, row)
            if allocation is not None:
                return row, allocation
        return -1, {}

    def _place(
        self,
        pod: PodRecord,
        pod_class: PodClass,
        row: int,
        score: int,
        class_index: int,
        allocation: dict[str, str],
        *,
        unit: int = 0,
    ) -> None:
        node = self._cache.table.names[row]
        self.plan.decisions.append(PlacedPod(pod, pod_class, node, score, class_index, allocation, unit))
        self._transaction.place(pod, pod_class, row, allocation)

    def _refuse(self, pod: PodRecord, class_: _Class, pod_hash: np.uint64) -> None:
        """Refuses a pod that no node admits; others may be evicted for it."""
        self._record_refusals(class_, pod_hash)
        nomination = self._preempt(pod, class_.evaluation, pod_hash)
        self.plan.decisions.append(RefusedPod(pod, class_.refused_at, nomination=nomination))

    def _alive(self) -> int:
        return int(self._cache.table.alive.sum())

    def _unreadable(self) -> ClassEvaluated:
        return ClassEvaluated(nodes=self._alive(), feasible=0)

    # preparation

    def _is_prepared(self, pod_class: PodClass) -> bool:
        """Returns True where a plugin may request something before pods of the class are bound, volumes for example."""
        states = self._transaction.plugin_states
        return any(states[plugin].applies_to(pod_class) for plugin in self._profile(pod_class).pre_bind)

    def _prepare(self, pod_class: PodClass, row: int, profile: Profile) -> Preparation | None:
        """Returns the writes that a pod needs before it can be bound to the node; it is tried again afterwards."""
        for plugin in profile.pre_bind:
            preparation = self._transaction.prepare(plugin, pod_class, row)
            if preparation is not None:
                return preparation
        return None

    def _wait_for(self, pod: PodRecord, preparation: Preparation) -> None:
        waits = Rejections(plugin=preparation.plugin, code=preparation.reason, nodes=1, detail=preparation.node)
        index = self.plan.evaluated(ClassEvaluated(nodes=self._alive(), feasible=0, rejected=(waits,)))
        self.plan.decisions.append(RefusedPod(pod, index, preparation))

    # preemption

    def _count_nominated_before(self, pod_class: PodClass) -> None:
        """Counts the nominated pods of the same or a higher priority on their nodes."""
        while (
            self._nominated
            and (first := self._nominated[-1]).pod_class is not None
            and first.pod_class.priority >= pod_class.priority
        ):
            self._nominated.pop()
            self._count_nominated(first, first.pod_class, first.nominated)

    def _count_nominated(self, pod: PodRecord, pod_class: PodClass, node: str) -> None:
        """Counts a nominated pod on its node, with the allocation that it will get there."""
        row = self._cache.table.rows.get(node, self._snapshot.size)
        if row < self._snapshot.size:
            leaving = self._preemptions.leaving_from(row, pod_class.priority)
            self._transaction.nominate(pod, pod_class, self._profile(pod_class), row, leaving)

    def _preempt(self, pod: PodRecord, evaluation: ClassEvaluation, pod_hash: np.uint64) -> Nomination | None:
        """Runs the PostFilter plugins, and counts the pod on the node that it is nominated for."""
        pod_class, profile = evaluation.pod_class, evaluation.profile
        nomination = None
        if profile.post_filters:
            steps = self._transaction
            fits = partial(steps.fits, profile, pod_class)
            refused = RefusedByNodes(pod, pod_class, pod_hash, evaluation.resolvable, fits, steps)
            nomination = self._post_filters.after_filters(profile.post_filters, refused)
        if node := self._preemptions.node_of(pod):
            self._count_nominated(pod, pod_class, node)
        return nomination

    # records

    def _record_evaluation(self, class_: _Class, row: int, pod_hash: np.uint64) -> None:
        """Records the evaluation of a class, unless the last record still holds for a pod on the node."""
        if class_.recorded_at < 0 or (class_.passed is not None and not class_.passed[row]):
            # A placement of this cycle may have made nodes feasible since, as by a required pod affinity.
            evaluation = class_.evaluation
            class_.recorded_at = self.plan.evaluated(evaluation.record(pod_hash))
            class_.passed = evaluation.by == FEASIBLE if self._remaining[evaluation.pod_class] > 1 else None

    def _record_refusals(self, class_: _Class, pod_hash: np.uint64) -> None:
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

    def _class(self, pod_class: PodClass) -> _Class:
        class_ = self._classes.get(pod_class)
        if class_ is None:
            evaluation = self._transaction.evaluation(self._profile(pod_class), pod_class)
            class_ = self._classes[pod_class] = _Class(evaluation, is_prepared=self._is_prepared(pod_class))
            self._evaluated += 1
            if self._remaining[pod_class] >= MIN_PODS:
                evaluation.look_ahead(self._snapshot)
        return class_

    def _profile(self, pod_class: PodClass) -> Profile:
        return self._cache.profiles[pod_class.scheduler]


def _is_plain(unit: Unit, pod_class: PodClass) -> bool:
    """Returns True for a fresh pod of the class that is a unit of its own and is not nominated."""
    pod = unit.pods[0]
    return pod.pod_class is pod_class and unit.order[2] == FRESH and not pod.nominated and len(unit.pods) == 1
