"""One scheduling cycle: a batch of waiting pods, each placed as if it were alone.

`decide` is a pure function of the State (through its cache), the configuration in it, and `now`. It changes neither;
the events that it returns do, once they are appended. They record enough to explain the cycle and to decide it again.

Source: architecture.md, "What a scheduling cycle records"; spec/scheduler-core.md 1.4, 1.5.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.batch_lookahead import BatchLookahead
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_preemptions import CyclePreemptions
from services.scheduler.cycle.cycle_record import CycleRecord
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.predicted_evaluation import MIN_PODS
from services.scheduler.cycle.preemption import Preemptor
from services.scheduler.cycle.preemption_events import least_first
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.cycle.turn_order import in_turn, turn
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.tiles import Int64
from services.scheduler.queue.active_queue import FRESH
from services.scheduler.queue.queueing_hints import QueueingHints
from services.scheduler.queue.scheduling_queue import Chosen
from services.scheduler.state.pod_class import PodClass
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
    """Tries up to `batch_size` waiting pods.

    Returns:
        CycleDecided, then one event for each placement and each changed condition, and those of preemptions; nothing
        when no pod may be tried.
    """
    cache.settle()
    cache.queue.advance(now_ns)
    if not cache.queue:
        return ()
    cycle = _Cycle(cache, now_ns)
    hints = QueueingHints(cache, cache.queue, cache.profiles)
    line = sorted(
        cache.queue.choose(batch_size, hints.to_requeue(cycle.feasible, cycle.max_requeued_classes())), key=turn
    )
    cycle.expect(line)
    for pod, due in in_turn(line, cycle.has_refused):
        if cycle.is_full(pod):
            break
        cycle.schedule(pod, due=due)
        cycle.drop_if_last(pod)
    return cycle.record.drafts()


def _is_plain(pod: PodRecord, pod_class: PodClass) -> bool:
    """Returns True for a pod of the class that is not nominated."""
    return pod.pod_class is pod_class and not pod.nominated


class _Class:
    """A class of equal pods within a cycle, and the indices of the records of its evaluation.

    `recorded_at` is the record for placed pods, `refused_at` that for refused ones. A record also holds for a later pod
    while it is true for it: its node had passed, or no filter result has changed.
    """

    __slots__ = ("evaluation", "futile", "passed", "recorded_at", "refused_at", "refused_by")

    def __init__(self, evaluation: ClassEvaluation) -> None:
        self.evaluation = evaluation
        self.recorded_at = -1
        self.refused_at = -1
        self.futile = 0
        self.passed: NDArray[np.bool_] | None = None  # rows that passed as recorded at `recorded_at`
        self.refused_by: tuple[Int64, Int64] | None = None  # filters and their results as recorded at `refused_at`


class _Cycle:
    """A cycle in progress."""

    def __init__(self, cache: CycleInputs, now_ns: int) -> None:
        self._cache = cache
        self.record = CycleRecord(cache)
        self._transaction = CycleTransaction(cache, now_ns)
        self._snapshot = self._transaction.snapshot
        self._classes: dict[PodClass, _Class] = {}
        self._remaining: Counter[PodClass | None] = Counter()
        self._evaluated = 0
        self._line: list[PodRecord] = []  # the pods in their order, if none is refused
        self._ranks: list[int] = []  # by place in the line: FRESH to REQUEUED
        self._places: dict[str, int] = {}  # uid -> place in the line
        self._ahead = BatchLookahead(lambda pod_class: self._transaction.active(self._profile(pod_class)).of(pod_class))
        self._placed_ahead: deque[PodRecord] = deque()  # pods of a run that are placed before their turn
        self._preemptions = CyclePreemptions(cache)
        self._preemptor = Preemptor(cache, self._preemptions, self._transaction)
        self._unresolvable: set[PodClass] = set()  # classes for which no eviction helps
        self._nominated: list[PodRecord] = []  # pods with victims that still run, lowest priority first

    def expect(self, line: Sequence[Chosen]) -> None:
        """Notes the pods to try, in their order if none is refused."""
        self._remaining.update(pod.pod_class for pod, *_ in line)
        for pod_class in [each for each in self._classes if each not in self._remaining]:
            del self._classes[
                pod_class
            ]  # evaluated for the queueing hints alone: an evaluation takes ten numbers a node
        coming = {pod.uid for pod, *_ in line}
        self._line = [each.pod for each in line]
        self._ranks = [each.order[1] for each in line]
        self._places = {pod.uid: place for place, pod in enumerate(self._line)}
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

    def is_full(self, pod: PodRecord) -> bool:
        """Returns True when the pod is left to the next cycle: its class is new, and this cycle has evaluated
        enough.
        """
        return (
            pod.pod_class not in self._classes
            and bool(self.record)
            and (self._evaluated + 1) * (self._snapshot.size + CLASS_COST_NODES) > MAX_EVALUATED_NODES
        )

    def has_refused(self, pod: PodRecord) -> bool:
        """Returns True once the cycle has refused a pod of the same class."""
        return pod.pod_class in self._classes and self._classes[pod.pod_class].refused_at >= 0

    def schedule(self, pod: PodRecord, *, due: bool) -> None:
        """Places the pod on its best node, or records that no node admits it."""
        if self._placed_ahead and self._placed_ahead[0] is pod:
            self._placed_ahead.popleft()
            return
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            self.record.refused(
                pod, self.record.evaluated(ClassEvaluated(nodes=int(self._cache.table.alive.sum()), feasible=0))
            )
            return
        self._count_nominated_before(pod_class)
        predicted = (
            self._ahead.next_placement(pod, self._transaction.changes, self._next_alone)
            if self._remaining[pod_class] == 1
            else None
        )
        if predicted is not None:
            self._evaluated += 1
            self._place(pod, pod_class, predicted.row, predicted.score, self.record.evaluated(predicted.evaluated), {})
            return
        class_ = self._class(pod_class)
        if class_.refused_at >= 0:
            class_.evaluation.catch_up()
            if not class_.evaluation.none_feasible():
                class_.refused_at = -1  # a placement of this cycle satisfies its pod affinity
        if class_.refused_at >= 0:
            if due:
                self._record_refusals(class_, name_hash(pod.uid))
                self.record.refused(pod, class_.refused_at)
                self._preempt(pod, class_.evaluation)
            return  # a requeued pod waits on: the event has not helped its class
        pod_hash = name_hash(pod.uid)
        class_.evaluation.catch_up()
        row, allocation = self._choose(class_.evaluation, pod_hash, self._preemptions.node_of(pod))
        if row < 0:
            self._record_refusals(class_, pod_hash)
            class_.futile = MAX_FUTILE  # its other pods are put back, and pods of other classes may come between them
            self.record.refused(pod, class_.refused_at)
            self._preempt(pod, class_.evaluation)
            return
        if class_.recorded_at < 0 or (class_.passed is not None and not class_.passed[row]):
            # A placement of this cycle may have made nodes feasible since, as by a required pod affinity.
            class_.recorded_at = self.record.evaluated(class_.evaluation.record(pod_hash))
            class_.passed = class_.evaluation.by == FEASIBLE if self._remaining[pod_class] > 1 else None
        if not self._prepare(pod, pod_class, row, class_.evaluation):
            self._place(pod, pod_class, row, int(class_.evaluation.total[row]), class_.recorded_at, allocation)
            if self._remaining[pod_class] > MIN_RUN and class_.futile < MAX_FUTILE:
                self._run_on(pod, pod_class, class_)

    def _run_on(self, pod: PodRecord, pod_class: PodClass, class_: _Class) -> None:
        """Places the equal pods that follow, as far as predicted; the result is that of placing each in its turn."""
        begin = end = self._places[pod.uid] + 1
        # Only FRESH pods: pods that this cycle puts back rank behind them, so none comes between the pods of the run.
        while end < len(self._line) and self._ranks[end] == FRESH and _is_plain(self._line[end], pod_class):
            end += 1
        if end - begin < MIN_RUN or self._is_prepared(pod_class):
            return
        pods = self._line[begin:end]
        rows, totals = class_.evaluation.run([name_hash(each.uid) for each in pods])
        count = self._transaction.place_all(pods[: len(rows)], pod_class, rows) if rows else 0
        class_.futile += count < MIN_RUN
        for each, row, total in zip(pods[:count], rows[:count], totals[:count], strict=True):
            self.record.placed(each, pod_class, row, total, class_.recorded_at, {})
            self._placed_ahead.append(each)

    def _next_alone(self, pod: PodRecord) -> Iterator[PodRecord]:
        """Yields the pod and those behind it, as long as each is the only one of its class in the cycle and needs no
        special step.
        """
        left = MAX_EVALUATED_NODES // (self._snapshot.size + CLASS_COST_NODES) - self._evaluated
        for other in islice(self._line, place := self._places[pod.uid], place + max(left, 0)):
            pod_class = other.pod_class
            if (
                pod_class is None
                or pod_class.fault
                or other.nominated
                or self._remaining[pod_class] != 1
                or pod_class in self._classes
                or self._is_prepared(pod_class)
            ):
                return
            yield other

    def drop_if_last(self, pod: PodRecord) -> None:
        """Drops the evaluation of the pod's class when no pod of it is left to try: it takes ten numbers a node."""
        self._remaining[pod.pod_class] -= 1
        if not self._remaining[pod.pod_class] and pod.pod_class is not None:
            self._classes.pop(pod.pod_class, None)

    def _choose(self, evaluation: ClassEvaluation, pod_hash: np.uint64, nominated: str) -> tuple[int, dict[str, str]]:
        """Returns the row of the best node with the resources to reserve, and the allocation there; -1 without one.

        Args:
            nominated: the node that the pod is nominated for; if feasible it takes precedence over every score.
        """
        row = self._cache.table.rows.get(nominated, -1) if nominated else -1
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
        self, pod: PodRecord, pod_class: PodClass, row: int, score: int, class_index: int, allocation: dict[str, str]
    ) -> None:
        self.record.placed(pod, pod_class, row, score, class_index, allocation)
        self._transaction.place(pod, pod_class, row, allocation)

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

    def _preempt(self, pod: PodRecord, evaluation: ClassEvaluation) -> None:
        """Requests the eviction of pods of lower priority, if that helps."""
        pod_class = evaluation.pod_class
        node = self._preemptions.node_of(pod)
        if pod_class not in self._unresolvable:
            candidate = self._preemptor.victims_for(pod, evaluation, name_hash(pod.uid))
            if candidate is not None:
                self.record.follow_up(pod, self._preemptor.events(pod, pod_class, candidate, self.record.cycle))
                node = candidate.node
            elif not node and self._preemptor.searched:
                self._unresolvable.add(pod_class)
        if node:
            self._count_nominated(pod, pod_class, node)

    def _is_prepared(self, pod_class: PodClass) -> bool:
        """Returns True where a plugin may request something before pods of the class are bound, volumes for example."""
        states = self._transaction.plugin_states
        return any(states[plugin].applies_to(pod_class) for plugin in self._profile(pod_class).preparing)

    def _prepare(self, pod: PodRecord, pod_class: PodClass, row: int, evaluation: ClassEvaluation) -> bool:
        """Records the requests of plugins that must be met before the pod can be bound; the pod is tried again
        afterwards.
        """
        for plugin in evaluation.profile.preparing:
            preparation = self._transaction.prepare(plugin, pod_class, row)
            if preparation is not None:
                self.record.follow_up(pod, preparation.events())
                waits = Rejections(plugin=plugin.name, code=preparation.reason, nodes=1, detail=preparation.node)
                nodes = int(self._cache.table.alive.sum())
                self.record.refused(
                    pod, self.record.evaluated(ClassEvaluated(nodes=nodes, feasible=0, rejected=(waits,)))
                )
                return True
        return False

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
        class_.refused_at = self.record.evaluated(evaluation.record(pod_hash))
        class_.refused_by = evaluation.by.copy(), evaluation.result.copy()

    def _class(self, pod_class: PodClass) -> _Class:
        class_ = self._classes.get(pod_class)
        if class_ is None:
            evaluation = self._transaction.evaluation(self._profile(pod_class), pod_class)
            class_ = self._classes[pod_class] = _Class(evaluation)
            self._evaluated += 1
            if self._remaining[pod_class] >= MIN_PODS:
                evaluation.look_ahead(self._snapshot)
        return class_

    def _profile(self, pod_class: PodClass) -> Profile:
        return self._cache.profiles[pod_class.scheduler]
