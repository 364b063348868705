"""Plans the start of a unit that fits nowhere: the fewest pods whose end makes capacity for it.

Pods are expected to end in this order: those that terminate, those with a deadline by its instant, then those that run
to completion, the oldest first. Pods that restart for ever are not expected to end. The shortest prefix of this order
without which the unit fits is found by bisection; each step is tried on the transaction and undone. Of the prefix the
unit waits for those on its own nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import PlacedPod, StartDecision
from services.scheduler.cycle.planned_starts import (
    NO_LONGER_FITS,
    REFUSED,
    PlannedStarts,
    UnitPlan,
)
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.cycle.result_of_unit_placement import UnitAttempt
from services.scheduler.queue.units import Group, Unit, class_of
from services.scheduler.state.expected_ends import deadline_ns, runs_to_completion
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord

MAX_STARTS = 8
"""Units with a planned start: each keeps nodes from the pods behind it."""

MAX_PLANNED = 4
"""Starts that a cycle plans: it must not block the service."""

MAX_NODES = 2000
"""Nodes whose pods are considered, in the order of their names."""

MAX_ENDS = 1000
"""Pods that are considered, in the order in which they are expected to end."""

Attempt = Callable[[Unit], UnitAttempt]
"""Places the pods that a unit needs."""


class _End(NamedTuple):
    """A pod that is expected to end.

    Attributes:
        order: (class of certainty, instant, uid).
        at_ns: by which it ends; 0 for an unknown time.
    """

    order: tuple[int, int, str]
    row: int
    assignment: Assignment
    at_ns: int


class StartPlanning:
    """The planning of starts in one cycle."""

    def __init__(self, cache: CycleInputs, pods: PodPlacement, now_ns: int) -> None:
        self._cache = cache
        self._pods = pods
        self._starts: PlannedStarts = pods.starts
        self._now_ns = now_ns
        self._planned = 0  # so far

    def begin(self, attempt: Attempt) -> None:
        """Takes over the recorded starts, and plans those anew that no longer hold."""
        for unit in self._starts.take_over():
            assert unit.group is not None, "it has a planned start"
            if not self._plan(unit, unit.group, NO_LONGER_FITS, attempt):
                self._starts.decided.append(StartDecision(unit.group, {}, (), 0, NO_LONGER_FITS))
        for unit in self._refused_by_last_cycle() if self._cache.backfill else ():
            self.refused(unit, attempt)

    def _refused_by_last_cycle(self) -> list[Unit]:
        """Returns the units that the last cycle has refused, in the order of the queue: where it had placed pods before
        it refused them, these are on their nodes only now.
        """
        queue, last_ns = self._cache.queue, self._cache.view.cycle_ns
        units = (queue.unit_of(group) for group in queue.groups() if group not in self._starts.plans)
        refused = [unit for unit in units if unit and any(p.attempts and p.tried_ns == last_ns for p in unit.pods)]
        return sorted(refused, key=lambda unit: queue.order_of(unit.pods[0]))

    def refused(self, unit: Unit, attempt: Attempt) -> None:
        """Plans the start of a unit that was refused and has none."""
        if self._cache.backfill and unit.group is not None and unit.group not in self._starts.plans:
            self._plan(unit, unit.group, REFUSED, attempt)

    def placed(self, unit: Unit) -> None:
        """Ends the start of a unit that is placed."""
        if unit.group is not None:
            self._starts.remove(unit.group)

    def _plan(self, unit: Unit, group: Group, reason: str, attempt: Attempt) -> bool:
        """Plans a start, if there is one; returns True then."""
        if self._planned >= MAX_PLANNED or len(self._starts.plans) >= MAX_STARTS:
            return False
        if any(pod.pod_class is None or pod.pod_class.fault for pod in unit.pods):
            return False
        self._planned += 1
        ends = self._ends(unit)
        placed = self._without(unit, ends, attempt)
        if not ends or not placed:
            return False
        low, high = 0, len(ends)  # the unit fits without the first `high`, and not without the first `low`
        while high - low > 1:
            middle = (low + high) // 2
            found = self._without(unit, ends[:middle], attempt)
            if found:
                high, placed = middle, found
            else:
                low = middle
        plan = self._plan_of(unit, group, ends[:high], placed)
        if not self._starts.holds(plan):
            return False
        self._starts.add(plan)
        names = self._cache.table.names
        nodes = {pod.uid: names[row] for pod, row in sorted(placed, key=lambda each: each[0].uid)}
        self._starts.decided.append(StartDecision(group, nodes, tuple(sorted(plan.ends)), plan.starts_ns, reason))
        return True

    def _plan_of(
        self, unit: Unit, group: Group, ends: Sequence[_End], placed: Iterable[tuple[PodRecord, int]]
    ) -> UnitPlan:
        """Returns the plan; on nodes of units ahead, it waits for the pods that these wait for as well."""
        rows: dict[int, tuple[PodRecord, ...]] = {}
        for pod, row in placed:
            rows[row] = (*rows.get(row, ()), pod)
        waits_for = [end for end in ends if end.row in rows]
        ahead = {plan.group: plan for row in rows for plan in self._starts.on(row)}.values()
        instants = (*(end.at_ns for end in waits_for), *(plan.starts_ns for plan in ahead))
        there = {uid for row in rows for uid in self._cache.on.get(row, ())}
        uids = {end.order[-1] for end in waits_for}.union(*(plan.ends & there for plan in ahead))
        starts_ns = max(instants, default=0) if all(instants) else 0
        return UnitPlan(group, self._cache.queue.order_of(unit.pods[0]), rows, frozenset(uids), starts_ns)

    def _without(self, unit: Unit, ends: Sequence[_End], attempt: Attempt) -> list[tuple[PodRecord, int]]:
        """Returns the rows on which the unit fits without these pods; none where it does not."""
        mark = self._pods.mark()
        for end in ends:
            self._pods.transaction.remove(end.assignment, end.row)
        self._starts.ended = frozenset(end.order[-1] for end in ends)
        outcome = attempt(unit)
        rows = self._cache.table.rows
        placed = [
            (each.pod, rows[each.node])
            for each in self._pods.plan.decisions[mark.plan.decisions :]
            if isinstance(each, PlacedPod)
        ]
        self._pods.undo(mark, unit.pods)
        self._starts.ended = frozenset()
        return placed if outcome.is_complete and not outcome.is_prepared else []

    def _ends(self, unit: Unit) -> list[_End]:
        """Returns the pods that are expected to end on nodes that a pod of the unit could use, in order."""
        usable: set[int] = set()
        for pod_class in dict.fromkeys(map(class_of, unit.pods)):
            evaluation = self._pods.class_of(pod_class, looks_ahead=False).evaluation
            usable.update(evaluation.feasible().tolist(), evaluation.resolvable().tolist())
        rows = sorted(usable & self._cache.on.keys(), key=self._cache.table.names.__getitem__)[:MAX_NODES]
        found = [
            end
            for row in rows
            for uid, assignment in self._cache.on[row].items()
            if (end := self._end(uid, row, assignment)) is not None
        ]
        return sorted(found, key=lambda end: end.order)[:MAX_ENDS]

    def _end(self, uid: str, row: int, assignment: Assignment) -> _End | None:
        started_ns = self._cache.view.pods[uid].started_ns
        if assignment.terminating:
            return _End((0, 0, uid), row, assignment, self._now_ns)
        at_ns = deadline_ns(assignment.pod_class, started_ns, self._now_ns)
        if at_ns is not None:
            return _End((1, at_ns, uid), row, assignment, max(at_ns, self._now_ns))
        if runs_to_completion(assignment.pod_class):
            return _End((2, started_ns or assignment.assigned_ns, uid), row, assignment, 0)
        return None
