"""Places units of several pods: as a whole or not at all.

Source: docs/adr/0022-units-and-plans.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.backfill_start_planning import StartPlanning
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import PlacedPod, PlannedHold, RefusedPod
from services.scheduler.cycle.gang_preemption import GangPreemption
from services.scheduler.cycle.network_domain_placement import NetworkDomainPlacement
from services.scheduler.cycle.pod_placement import MAX_FUTILE, MIN_RUN, PodPlacement
from services.scheduler.cycle.pod_scheduled_condition import message
from services.scheduler.cycle.result_of_unit_placement import UnitAttempt
from services.scheduler.framework.gang_grouping_interface import (
    Gathering,
    PodGrouping,
    Requirement,
    UnitFailure,
    all_needed,
)
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination
from services.scheduler.framework.reasons import UNIT_NOT_PLACED
from services.scheduler.queue.units import Unit, class_of
from services.scheduler.state.pod_attempts_and_refusals import FOR_UNIT, FOR_VOLUMES
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events.scheduling import ClassEvaluated, Rejections

NO_NOMINATIONS: Mapping[str, Nomination] = {}


class UnitPlacement:
    """The steps of a cycle for units of several pods."""

    def __init__(self, pods: PodPlacement, cache: CycleInputs, now_ns: int) -> None:
        self._pods = pods
        self._groupings = cache.groupings
        self._in_domains = NetworkDomainPlacement(pods, cache)
        self._preemption = GangPreemption(pods, cache, self._in_domains)
        self._starts = StartPlanning(cache, pods, now_ns)
        self._now_ns = now_ns
        self._units = 0  # so far

    def begin(self) -> None:
        """Takes over the planned starts of earlier cycles."""
        self._starts.begin(self._attempt_needed)

    def schedule(self, unit: Unit) -> None:
        """Places as many pods of a unit as it needs, and undoes all of it when there are too few nodes for these. Such
        pods preempt none: victims of one pod would be evicted in vain where another has no node.

        Where one of them has to be prepared, the nodes of all are held until it is. Where the plugin holds the nodes of
        placed pods, nothing is undone when others have none; the unit that is complete at last is bound with the held
        ones.
        """
        requirement = unit.requirement or all_needed(unit.pods)
        mark = self._pods.mark()
        self._units += 1
        grouping = self._grouping(unit)
        key = unit.group.key if unit.group is not None else ""
        decisions = self._pods.plan.decisions
        gathering = grouping.gathering(key, unit.pods) if grouping is not None else None
        holds = gathering is None and grouping is not None and grouping.holds(key)
        if gathering is None:
            attempt = self._attempt(unit, requirement, keeps_on=holds)
        else:
            attempt = self._in_domains.attempt(unit, requirement, gathering, self._units)
            # The pods of a unit are neighbours; those that it does not need are units of their own.
            decisions[mark.plan.decisions :] = sorted(decisions[mark.plan.decisions :], key=_is_of_no_unit)
        if attempt.is_complete:
            self._starts.placed(unit)
            if attempt.undecided:
                self._pods.plan.left_out[self._units] = tuple(attempt.undecided)
            self._place_held(grouping.held(key) if grouping is not None else (), self._units)
            if attempt.is_prepared:
                self._hold(decisions, mark.plan.decisions, FOR_VOLUMES, key)
            else:
                if grouping is not None:
                    self._annotate(grouping, key, mark.plan.decisions)
                if grouping is not None and any(requirement.needed.values()):
                    self._pods.plan.starts[self._units] = grouping.starts(key, self._now_ns)
            decisions += [RefusedPod(pod, self._pods.plan.evaluated(found)) for pod, found in attempt.failed]
            return
        if holds and attempt.placed and not attempt.is_prepared:
            self._hold(decisions, mark.plan.decisions, FOR_UNIT, key)
            refused = [RefusedPod(pod, self._pods.plan.evaluated(found)) for pod, found in attempt.failed]
            placed = {each.pod.uid for each in decisions[mark.plan.decisions :]}
            self._pods.plan.left_out[self._units] = tuple(pod for pod in unit.pods if pod.uid not in placed)
            decisions += refused
            self._refuse_others(unit, decisions[mark.plan.decisions :], cause=refused[0].pod)
            return
        self._pods.undo(mark, unit.pods)
        self._refuse(unit, attempt, requirement, gathering)

    def _refuse(self, unit: Unit, attempt: UnitAttempt, requirement: Requirement, gathering: Gathering | None) -> None:
        """Refuses all pods of an undone unit, and evicts others for those that it needs where its plugin does so."""
        decisions = self._pods.plan.decisions
        first, grouping = len(decisions), self._grouping(unit)
        nominations = dict[str, Nomination]()
        pod, found = attempt.failed[-1]
        if grouping is not None and grouping.preempts:
            found_nodes = self._preemption.nominations(unit, requirement, gathering)
            nominations = {each.pod.uid: each for each in found_nodes}
        decisions.append(RefusedPod(pod, self._pods.plan.evaluated(found), nominations.get(pod.uid)))
        words = self._message(unit, attempt)
        self._refuse_others(unit, decisions[first:], words, cause=pod, nominations=nominations)
        self._preemption.count_nominated(unit.pods)
        if not nominations:
            self._starts.refused(unit, self._attempt_needed)

    def bind_held(self, pods: Sequence[PodRecord]) -> None:
        """Binds pods to the nodes that are held for them; several are a unit."""
        hold, pod_class = pods[0].hold, class_of(pods[0])
        key = hold.unit if hold is not None else ""
        self._units += bool(key)
        first = len(self._pods.plan.decisions)
        self._place_held(pods, self._units if key else 0)
        for grouping in self._groupings.get(pod_class.scheduler, {}).values() if key else ():
            self._pods.plan.starts[self._units] = grouping.starts(key, self._now_ns)
            self._annotate(grouping, key, first)

    def _hold(self, decisions: list[PlacedPod | RefusedPod], first: int, waits_for: str, key: str) -> None:
        """Holds the nodes of the placed pods from one on, instead of binding them."""
        for place in range(first, len(decisions)):
            each = decisions[place]
            assert isinstance(each, PlacedPod), "the others are refused behind it"
            preparations = each.hold.preparations if each.hold is not None else ()
            decisions[place] = each._replace(hold=PlannedHold(waits_for, key, preparations))

    def _place_held(self, held: Sequence[PodRecord], unit: int) -> None:
        """Places the pods of the unit of this number, 0 for none, on the nodes that are held for them, where they count
        already.
        """
        for pod in held:
            index = self._pods.plan.evaluated(ClassEvaluated(nodes=self._pods.alive(), feasible=1))
            allocation = pod.hold.annotations if pod.hold is not None else {}
            placed = PlacedPod(pod, class_of(pod), pod.placed_node, 0, index, allocation, unit)
            self._pods.plan.decisions.append(placed)

    def _attempt_needed(self, unit: Unit) -> UnitAttempt:
        """Places the pods that a unit needs, in network domains where it wishes so."""
        requirement, grouping = unit.requirement or all_needed(unit.pods), self._grouping(unit)
        key = unit.group.key if unit.group is not None else ""
        gathering = grouping.gathering(key, unit.pods) if grouping is not None else None
        if gathering is None:
            return self._attempt(unit, requirement._replace(takes_all=False), keeps_on=False)
        return self._in_domains.attempt(unit, requirement, gathering, self._units)

    def _attempt(self, unit: Unit, requirement: Requirement, *, keeps_on: bool) -> UnitAttempt:
        """Places pods of a unit until the requirement is met, or can no longer be met.

        Args:
            keeps_on: all pods that are needed are tried although it cannot be met.
        """
        needed, part_of = requirement.needed, requirement.part_of
        left = Counter(part_of.get(pod.uid, "") for pod in unit.pods)
        placed: Counter[str] = Counter()
        attempt = UnitAttempt()
        ahead = 0  # pods that are placed before their turn
        for place, pod in enumerate(unit.pods):
            if ahead:
                ahead -= 1
                continue
            part = part_of.get(pod.uid, "")
            left[part] -= 1
            if placed[part] >= needed.get(part, 0) and not requirement.takes_all:
                attempt.undecided.append(pod)
                continue
            found = self._place_member(pod)
            if isinstance(found, ClassEvaluated):
                attempt.failed.append((pod, found))
                if placed[part] + left[part] < needed.get(part, 0):
                    attempt.is_complete = False
                    if not keeps_on:
                        break
                continue
            placed[part] += 1
            if found:
                attempt.is_prepared = True
                continue
            missing = len(unit.pods) if requirement.takes_all else needed.get(part, 0) - placed[part]
            ahead = self._run_on(pod, _equal_behind(unit, place, part_of, missing))
            placed[part] += ahead
            left[part] -= ahead
        attempt.placed = placed.total()
        return attempt

    def _run_on(self, pod: PodRecord, equal: Iterator[PodRecord]) -> int:
        """Places equal pods behind a placed one, as far as predicted; returns how many."""
        assert pod.pod_class is not None, "it was placed"
        class_ = self._pods.class_of(pod.pod_class)
        if (
            self._pods.starts.plans
            or class_.is_prepared
            or class_.futile >= MAX_FUTILE
            or len(pods := list(equal)) < MIN_RUN
        ):
            return 0
        return self._pods.place_run(pods, pod.pod_class, class_, unit=self._units)

    def _annotate(self, grouping: PodGrouping, key: str, first: int) -> None:
        """Adds the annotations that the plugin writes to the pods that are bound together, from one decision on."""
        decisions = self._pods.plan.decisions
        count = sum(isinstance(each, PlacedPod) and each.unit > 0 for each in decisions[first:])
        annotations = grouping.annotations(key, count)
        for place in range(first, len(decisions)):
            each = decisions[place]
            if isinstance(each, PlacedPod) and each.unit:
                decisions[place] = each._replace(allocation={**each.allocation, **annotations})

    def _message(self, unit: Unit, attempt: UnitAttempt) -> str:
        """Returns the message of the pods that are refused with the first one that could not be placed."""
        grouping, (pod, found) = self._grouping(unit), attempt.failed[-1]
        if grouping is None or unit.group is None or pod.pod_class is None:
            return ""
        words = pod.pod_class.fault or message(found, self._pods.profile(pod.pod_class).texts)
        return grouping.message(unit.group.key, UnitFailure(pod.name, words, attempt.placed))

    def _grouping(self, unit: Unit) -> PodGrouping | None:
        return None if unit.group is None else self._groupings[unit.group.scheduler][unit.group.plugin]

    def _place_member(self, pod: PodRecord) -> ClassEvaluated | bool:
        """Places a pod of a unit of several.

        Returns:
            The evaluation with the reasons if no node admits it; else whether something is prepared for it.
        """
        pod_class = class_of(pod)
        if pod_class.fault:
            return self._pods.unreadable()
        self._pods.count_nominated_before(pod_class)
        self._pods.transaction.focus(self._pods.profile(pod_class), pod_class)
        class_, pod_hash = self._pods.class_of(pod_class), name_hash(pod.uid)
        evaluation = class_.evaluation
        evaluation.catch_up()
        row, allocation = self._pods.choose(evaluation, pod, pod_hash)
        if row < 0:
            return evaluation.record(pod_hash)
        self._pods.record_evaluation(class_, row, pod_hash)
        preparation = self._pods.prepare(pod_class, row, evaluation.profile) if class_.is_prepared else None
        score = int(evaluation.total[row])
        self._pods.place(
            pod, pod_class, row, score, class_.recorded_at, allocation, unit=self._units, preparation=preparation
        )
        return preparation is not None

    def _refuse_others(
        self,
        unit: Unit,
        decisions: Sequence[PlacedPod | RefusedPod],
        words: str = "",
        *,
        cause: PodRecord,
        nominations: Mapping[str, Nomination] = NO_NOMINATIONS,
    ) -> None:
        """Refuses the pods of a unit about which there is no decision: they wait for the one that is the cause."""
        decided = {each.pod.uid for each in decisions}
        nodes, plugin = self._pods.alive(), unit.group.plugin if unit.group else ""
        rejected = Rejections(plugin=plugin, code=UNIT_NOT_PLACED, nodes=nodes, detail=cause.name)
        index = self._pods.plan.evaluated(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
        self._pods.plan.decisions += [
            RefusedPod(pod, index, nominations.get(pod.uid), words) for pod in unit.pods if pod.uid not in decided
        ]


def _is_of_no_unit(decision: PlacedPod | RefusedPod) -> bool:
    return isinstance(decision, PlacedPod) and not decision.unit


def _equal_behind(unit: Unit, place: int, part_of: Mapping[str, str], most: int) -> Iterator[PodRecord]:
    """Yields the pods behind one of a unit that are placed like it: of its class and part, and not nominated."""
    pod = unit.pods[place]
    for other in islice(unit.pods, place + 1, place + 1 + max(most, 0)):
        is_equal = other.pod_class is pod.pod_class and part_of.get(other.uid, "") == part_of.get(pod.uid, "")
        if not is_equal or other.nominated:
            return
        yield other
