"""One scheduling cycle: a batch of waiting pods, each placed as if it were alone.

`plan_cycle` is a pure function of the State (through its cache), the configuration in it, and `now`. It changes
neither; the events of the plan do, once they are appended. They record enough to explain the cycle and to decide it
again.

Source: architecture.md, "What a scheduling cycle records"; spec/scheduler-core.md 1.4, 1.5.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan, PlanInProgress, RefusedPod
from services.scheduler.cycle.evaluation_records_shared_by_class import EvaluatedClass
from services.scheduler.cycle.multi_pod_unit_placement import UnitPlacement
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.cycle.pod_placement import MAX_FUTILE, MIN_RUN, PodPlacement
from services.scheduler.cycle.predict_placements_of_next_pods import BatchLookahead
from services.scheduler.queue.active_queue import FRESH
from services.scheduler.queue.queueing_hints import QueueingHints
from services.scheduler.queue.units import Unit, in_turn, turn
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import Draft

MAX_EVALUATED_NODES = 2_000_000
"""Maximum number of nodes that a cycle evaluates, summed over its classes, some 25 ns each: it must not block the
service.
"""

MAX_REQUEUE_NODES = 2_000_000
"""Maximum number of nodes that a cycle evaluates to decide which refused pods to requeue, while other pods wait. It has
no part in the budget of placements: refused pods delay no others.
"""

MAX_DECISIONS = 4096
"""Number of pods about which a cycle decides, unless its first unit has more: a unit takes one place of a batch, and may
have a thousand pods.
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
    preparations = cache.preparations.settled(now_ns)
    released, lost = (*cache.expired_holds(now_ns), *preparations.released), cache.lost_nominations()
    if released or lost:
        # The next cycle has their capacity.
        return PlanInProgress().finished(number, cache.profiles)._replace(released=released, lost=lost)
    if not cache.queue and not preparations.ready and not cache.view.planned_starts:
        return PlanInProgress().finished(number, cache.profiles)
    cycle = _Cycle(cache, now_ns)
    if cache.backfill or cache.view.planned_starts:
        cycle.take_over_starts()
    cycle.bind_prepared(preparations.ready)
    hints = QueueingHints(cache, cache.queue, cache.profiles, plans_starts=cache.backfill)
    line = sorted(
        cache.queue.choose(batch_size, hints.to_requeue(cycle.feasible, cycle.max_requeued_classes())), key=turn
    )
    cycle.expect(line)
    for unit in in_turn(line, cycle.has_refused):
        if cycle.is_full(unit):
            break
        cycle.schedule(unit)
        cycle.drop_if_last(unit)
    return cycle.finished(number)


class _Cycle:
    """A cycle in progress.

    Attributes:
        plan: the decisions so far.
    """

    def __init__(self, cache: CycleInputs, now_ns: int) -> None:
        self._cache = cache
        self._pods = PodPlacement(cache, now_ns)
        self._units = UnitPlacement(self._pods, cache, now_ns)
        self.plan = self._pods.plan
        self._transaction = self._pods.transaction
        self._size = self._transaction.snapshot.size
        self._line: Sequence[Unit] = ()  # the units in their order, if none is refused
        self._places: dict[str, int] = {}  # uid of a unit's first pod -> place in the line
        self._ahead = BatchLookahead(self._pods.active_of)
        self._placed_ahead: deque[PodRecord] = deque()  # pods of a run that are placed before their turn

    def take_over_starts(self) -> None:
        """Keeps the nodes of planned starts from the pods behind their units."""
        self._units.begin()

    def finished(self, number: int) -> CyclePlan:
        """Returns the plan of the cycle of this number."""
        starts = self._pods.starts
        plan = self.plan.finished(number, self._cache.profiles)
        return plan._replace(planned=tuple(starts.decided), passes=starts.passes)

    def expect(self, line: Sequence[Unit]) -> None:
        """Notes the units to try, in their order if none is refused."""
        self._line = line
        self._pods.remaining.update(pod.pod_class for unit in line for pod in unit.pods)
        for pod_class in [each for each in self._pods.classes if each not in self._pods.remaining]:
            # evaluated for the queueing hints alone: an evaluation takes ten numbers a node
            del self._pods.classes[pod_class]
        self._places = {unit.pods[0].uid: place for place, unit in enumerate(line)}
        if self._cache.nominated:
            coming = {pod.uid for unit in line for pod in unit.pods}
            self._pods.expect_nominated(pod for pod in self._cache.nominated.values() if pod.uid not in coming)

    def bind_prepared(self, ready: Sequence[Sequence[PodRecord]]) -> None:
        """Binds the pods of each unit whose preparations are done to the nodes that are held for them."""
        for pods in ready:
            self._units.bind_held(pods)

    def feasible(self, pod_class: PodClass) -> NDArray[Any]:
        """Returns the rows of the nodes that would admit a pod of the class."""
        evaluated = self._pods.evaluated
        feasible = self._pods.class_of(pod_class).evaluation.feasible()
        self._pods.evaluated = evaluated  # the budget of placements is for other classes
        return feasible

    def max_requeued_classes(self) -> int:
        """Returns how many refused classes the cycle may evaluate before it chooses its pods."""
        return max(1, MAX_REQUEUE_NODES // (self._size + CLASS_COST_NODES))

    def is_full(self, unit: Unit) -> bool:
        """Returns True when the unit is left to the next cycle: this cycle has decided about enough pods of units; or
        the unit has a new class, and this cycle has evaluated enough.
        """
        decided = len(self.plan.decisions)
        if not decided:
            return False
        if decided + len(unit.pods) > MAX_DECISIONS:
            return True
        return (self._pods.evaluated + 1) * (self._size + CLASS_COST_NODES) > MAX_EVALUATED_NODES and any(
            pod.pod_class not in self._pods.classes for pod in unit.pods
        )

    def has_refused(self, unit: Unit) -> bool:
        """Returns True once the cycle has refused a pod of a class of the unit."""
        for pod in unit.pods:
            class_ = None if pod.pod_class is None else self._pods.classes.get(pod.pod_class)
            if class_ is not None and class_.refused_at >= 0:
                return True
        return False

    def drop_if_last(self, unit: Unit) -> None:
        """Drops the evaluations of classes of which no pod is left to try: they take ten numbers a node."""
        remaining = self._pods.remaining
        for pod in unit.pods:
            left = remaining[pod.pod_class] = remaining[pod.pod_class] - 1
            if not left and pod.pod_class is not None:
                self._pods.classes.pop(pod.pod_class, None)

    def schedule(self, unit: Unit) -> None:
        """Places all pods of the unit, each on its best node; or refuses all of them."""
        if unit.group is not None:
            self._units.schedule(unit)
        elif self._placed_ahead and self._placed_ahead[0] is unit.pods[0]:
            self._placed_ahead.popleft()
        else:
            self._schedule_pod(unit.pods[0], due=unit.due)

    def _schedule_pod(self, pod: PodRecord, *, due: bool) -> None:
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            self.plan.decisions.append(RefusedPod(pod, self.plan.evaluated(self._pods.unreadable())))
            return
        if self._cache.nominated:
            self._pods.count_nominated_before(pod_class)
        if self._transaction.can_lift:
            self._transaction.focus(self._pods.profile(pod_class), pod_class)
        if self._pods.remaining[pod_class] == 1 and not self._pods.starts.plans:
            predicted = self._ahead.next_placement(pod, self._transaction.changes, self._next_alone)
            if predicted is not None:
                self._pods.evaluated += 1
                index = self.plan.evaluated(predicted.evaluated)
                self._pods.place(pod, pod_class, predicted.row, predicted.score, index, {})
                return
        class_, pod_hash = self._pods.class_of(pod_class), name_hash(pod.uid)
        evaluation = class_.evaluation
        evaluation.catch_up()
        if class_.refused_at >= 0 and not evaluation.none_feasible():
            class_.refused_at = -1  # a placement of this cycle satisfies its pod affinity
        if class_.refused_at >= 0:
            if due:  # else it waits on: the event has not helped its class
                self._pods.refuse(pod, class_, pod_hash)
            return
        row, allocation = self._pods.choose(evaluation, pod, pod_hash)
        if row < 0:
            class_.futile = MAX_FUTILE  # its other pods are put back, and pods of other classes may come between them
            self._pods.refuse(pod, class_, pod_hash)
            return
        self._pods.record_evaluation(class_, row, pod_hash)
        preparation = self._pods.prepare(pod_class, row, evaluation.profile) if class_.is_prepared else None
        score = int(evaluation.total[row])
        self._pods.place(pod, pod_class, row, score, class_.recorded_at, allocation, preparation=preparation)
        if self._pods.remaining[pod_class] > MIN_RUN and not self._pods.starts.plans and class_.futile < MAX_FUTILE:
            self._run_on(pod, pod_class, class_)

    def _run_on(self, pod: PodRecord, pod_class: PodClass, class_: EvaluatedClass) -> None:
        """Places the equal pods that follow, as far as predicted; the result is that of placing each in its turn."""
        begin = end = self._places[pod.uid] + 1
        # Only FRESH pods: pods that this cycle puts back rank behind them, so none comes between the pods of the run.
        while end < len(self._line) and _is_plain(self._line[end], pod_class):
            end += 1
        if end - begin < MIN_RUN or class_.is_prepared:
            return
        pods = [unit.pods[0] for unit in self._line[begin:end]]
        count = self._pods.place_run(pods, pod_class, class_)
        self._placed_ahead.extend(pods[:count])

    def _next_alone(self, pod: PodRecord) -> Iterator[PodRecord]:
        """Yields the pod and those behind it, as long as each is the only one of its class in the cycle and needs no
        special step.
        """
        left = MAX_EVALUATED_NODES // (self._size + CLASS_COST_NODES) - self._pods.evaluated
        for unit in islice(self._line, place := self._places[pod.uid], place + max(left, 0)):
            other = unit.pods[0]
            pod_class = other.pod_class
            if (
                unit.group is not None
                or pod_class is None
                or pod_class.fault
                or other.nominated
                or self._pods.remaining[pod_class] != 1
                or pod_class in self._pods.classes
                or self._pods.is_prepared(pod_class)
            ):
                return
            yield other


def _is_plain(unit: Unit, pod_class: PodClass) -> bool:
    """Returns True for a fresh pod of the class that is a unit of its own and is not nominated."""
    pod = unit.pods[0]
    return pod.pod_class is pod_class and unit.order[2] == FRESH and not pod.nominated and unit.group is None
