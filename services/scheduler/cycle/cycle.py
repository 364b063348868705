"""One cycle: a batch of waiting pods, each placed as if it were alone, recorded so that it can be explained and repeated.

`decide` is a pure function of the state (through its index), the configuration in it, and `now`. It changes neither; the
events that it returns do, once they are appended.

Source: architecture.md, "What a scheduling cycle records"; spec/scheduler-core.md 1.4, 1.5.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.batch_lookahead import BatchLookahead
from services.scheduler.cycle.condition_message import main_code, message
from services.scheduler.cycle.cycle_preemptions import CyclePreemptions
from services.scheduler.cycle.cycle_state import CycleState
from services.scheduler.cycle.evaluation import ClassEvaluation, Placement
from services.scheduler.cycle.lookahead import WORTH_IT
from services.scheduler.cycle.nomination import least_first
from services.scheduler.cycle.preemption import Kept, Preemptor
from services.scheduler.cycle.scheduling_cache import SchedulingCache
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import UNREADABLE_POD, text
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.tiles import Int64
from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE
from services.scheduler.queue.queueing_hints import QueueingHints
from services.scheduler.queue.scheduling_queue import Chosen
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from shared.events import Cause, Draft
from shared.events.scheduling import ClassEvaluated, CycleDecided, PodOutcome, PodPlaced, PodUnschedulable, Rejections

WORTH_A_RUN = 4
"""So many equal pods behind one of theirs are placed together, at least."""

MOST_VAIN = 3
"""After so many runs of a class that ended at once its pods are placed one by one: each goes to the same few nodes."""

MOST_JUDGED = 2_000_000
"""How many nodes a cycle judges at most, over all its classes, so that it never holds the service for long: some 25 ns each."""

ALSO_A_CLASS = 1000
"""A class costs as much as so many nodes, besides the nodes themselves."""


def decide(cache: SchedulingCache, now_ns: int, batch_size: int) -> tuple[Draft, ...]:
    """Try up to `batch_size` waiting pods: CycleDecided first, then one event for each pod that it places or that must be told.

    Returns:
        Nothing when no pod may be tried.
    """
    cache.settle()
    cache.queue.advance(now_ns)
    if not cache.queue:
        return ()
    cycle = _Cycle(cache, now_ns)
    line = sorted(
        cache.queue.choose(batch_size, QueueingHints(cache, cache.queue, cache.profiles).to_requeue(cycle.feasible)),
        key=_turn,
    )
    cycle.expect(line)
    for pod, due in _in_turn(line, cycle.has_refused):
        if cycle.is_full(pod):
            break
        cycle.take(pod, due=due)
        cycle.forget_if_last(pod)
    return cycle.drafts()


def _in_turn(line: Sequence[Chosen], has_refused: Callable[[PodRecord], bool]) -> Iterator[tuple[PodRecord, bool]]:
    """(pod, due) in the order in which cycles of one pod would take them: of equal priority, those for whom room was made come first,
    and those of a class that has been refused meanwhile come behind the classes that have not been.
    """
    back: list[tuple[Turn, int]] = []  # put back, by their new turn
    for number, each in enumerate(line):
        while back and back[0][0] < _turn(each):
            yield line[heappop(back)[1]][:2]
        if each.order[1] == FRESH and has_refused(each.pod):
            priority, later, _, since, uid = _turn(each)
            heappush(back, ((priority, later, REFUSED_BEFORE, since, uid), number))
        else:
            yield each[:2]
    while back:
        yield line[heappop(back)[1]][:2]


def _is_plain(pod: PodRecord, pod_class: PodClass) -> bool:
    """Whether a pod is of the class, and nothing is special about it."""
    return pod.pod_class is pod_class and not pod.nominated


Turn = tuple[int, bool, int, int, str]


def _turn(chosen: Chosen) -> Turn:
    """By what pods stand in line."""
    priority, kind, since, uid = chosen.order
    return priority, not chosen.pod.nominated, kind, since, uid


class _Class:
    """A class of equal pods within a cycle, and the index of the record that holds for its pods: of placed ones, and of refused ones.

    A record holds for a later pod while it is true of what this pod found: its node passed, or no filter result has changed.
    """

    __slots__ = ("evaluation", "judged_at", "passed", "refused_at", "refused_by", "vain")

    def __init__(self, evaluation: ClassEvaluation) -> None:
        self.evaluation = evaluation
        self.judged_at = -1
        self.refused_at = -1
        self.vain = 0
        self.passed: NDArray[np.bool_] | None = None  # rows that passed as recorded at `judged_at`
        self.refused_by: tuple[Int64, Int64] | None = None  # filters and their results as recorded at `refused_at`


class _Cycle:
    """The working copy of a cycle."""

    def __init__(self, cache: SchedulingCache, now_ns: int) -> None:
        self._cache = cache
        self._number = cache.view.cycle + 1
        self._copies = CycleState(cache, now_ns)
        self._snapshot = self._copies.snapshot
        self._active_by_profile: dict[Profile, ActivePlugins] = {}
        self._classes: dict[PodClass, _Class] = {}
        self._placements: list[Placement] = []
        self._coming: Counter[PodClass | None] = Counter()
        self._judges_made = 0
        self._line: list[PodRecord] = []  # who comes in which order, if none is refused
        self._kinds: list[int] = []  # by place in the line: FRESH to WOKEN
        self._places: dict[str, int] = {}  # uid -> place in the line
        self._ahead = BatchLookahead(lambda pod_class: self._active(self._profile(pod_class)).of(pod_class))
        self._running: deque[PodRecord] = deque()  # pods of a run that have their nodes, and whose turn is yet to come
        self._judged: list[ClassEvaluated] = []
        self._outcomes: list[PodOutcome] = []
        self._events: list[Draft] = []
        self._kept: list[Kept] = []
        self._preemptions = CyclePreemptions(cache)
        self._preemptor = Preemptor(cache, self._preemptions, self._kept, lambda: CycleState(cache, now_ns))
        self._fruitless: set[PodClass] = set()  # classes for which no pod can give way
        self._nominated: list[PodRecord] = []  # pods for whom room is made, the least first

    def expect(self, line: Sequence[Chosen]) -> None:
        """Take note of the pods that are to come, in the order in which they do if none is refused."""
        self._coming.update(pod.pod_class for pod, *_ in line)
        coming = {pod.uid for pod, *_ in line}
        self._line = [each.pod for each in line]
        self._kinds = [each.order[1] for each in line]
        self._places = {pod.uid: place for place, pod in enumerate(self._line)}
        self._nominated = [pod for pod in least_first(self._cache.nominated.values()) if pod.uid not in coming]

    def feasible(self, pod_class: PodClass) -> NDArray[Any]:
        """The nodes that would take a pod of the class."""
        return self._class(pod_class).evaluation.feasible()

    def is_full(self, pod: PodRecord) -> bool:
        """Whether the pod is left to the next cycle, because its class is new and this cycle has judged enough."""
        return (
            pod.pod_class not in self._classes
            and bool(self._outcomes)
            and (self._judges_made + 1) * (self._snapshot.size + ALSO_A_CLASS) > MOST_JUDGED
        )

    def has_refused(self, pod: PodRecord) -> bool:
        """Whether a pod of the same class was refused in this cycle."""
        return pod.pod_class in self._classes and self._classes[pod.pod_class].refused_at >= 0

    def take(self, pod: PodRecord, *, due: bool) -> None:
        """Place the pod on its best node, or note that none will take it."""
        if self._running and self._running[0] is pod:
            self._running.popleft()
            return
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            self._refuse(pod, self._record(ClassEvaluated(nodes=int(self._cache.table.alive.sum()), feasible=0)))
            return
        self._keep_room_from(pod_class)
        predicted = self._ahead.goes(pod, self._placements, self._next_alone) if self._coming[pod_class] == 1 else None
        if predicted is not None:
            self._judges_made += 1
            self._place(pod, pod_class, predicted.row, predicted.score, self._record(predicted.judged), {})
            return
        class_ = self._class(pod_class)
        if class_.refused_at >= 0:
            class_.evaluation.catch_up()
            if not class_.evaluation.none_feasible():
                class_.refused_at = -1  # a pod of this cycle is what it wanted to be near
        if class_.refused_at >= 0:
            if due:
                self._record_refusals(class_, name_hash(pod.uid))
                self._refuse(pod, class_.refused_at)
                self._preempt(pod, class_.evaluation)
            return  # others of the pool wait on: this cycle has shown that nothing was cured for them
        pod_hash = name_hash(pod.uid)
        class_.evaluation.catch_up()
        row, given = self._choose(class_.evaluation, pod_hash, self._preemptions.node_of(pod))
        if row < 0:
            self._record_refusals(class_, pod_hash)
            class_.vain = MOST_VAIN  # its other pods are put back, and others' turns may come between them
            self._refuse(pod, class_.refused_at)
            self._preempt(pod, class_.evaluation)
            return
        if class_.judged_at < 0 or (class_.passed is not None and not class_.passed[row]):
            # A placement of this cycle may have let nodes pass since, such as the one that the pod had to be near to.
            class_.judged_at = self._record(class_.evaluation.judged(pod_hash))
            class_.passed = class_.evaluation.by == FEASIBLE if self._coming[pod_class] > 1 else None
        if not self._prepare(pod, pod_class, row, class_.evaluation):
            self._place(pod, pod_class, row, int(class_.evaluation.total[row]), class_.judged_at, given)
            if self._coming[pod_class] > WORTH_A_RUN and class_.vain < MOST_VAIN:
                self._run_on(pod, pod_class, class_)

    def _run_on(self, pod: PodRecord, pod_class: PodClass, class_: _Class) -> None:
        """Place the equal pods that come next, as far as is foreseen: the result is the one that their turns would have."""
        begin = end = self._places[pod.uid] + 1
        # Of fresh pods alone: behind these come those that this cycle puts back, so that nobody else's turn is between them.
        while end < len(self._line) and self._kinds[end] == FRESH and _is_plain(self._line[end], pod_class):
            end += 1
        if end - begin < WORTH_A_RUN or self._is_prepared(pod_class):
            return
        pods = self._line[begin:end]
        rows, totals = class_.evaluation.run([name_hash(each.uid) for each in pods])
        count = self._copies.count_all(pods[: len(rows)], pod_class, rows) if rows else 0
        class_.vain += count < WORTH_A_RUN
        for each, row, total in zip(pods[:count], rows[:count], totals[:count], strict=True):
            self._say_placed(each, pod_class, row, total, class_.judged_at, {})
            self._kept.append((each, pod_class, row, {}))
            self._placements.append(Placement(row, pod_class, predicted=True))
            self._running.append(each)

    def _next_alone(self, pod: PodRecord) -> Iterator[PodRecord]:
        """The pod and those that come behind it, for as long as each is the only one of its class, and nothing is special about it."""
        left = MOST_JUDGED // (self._snapshot.size + ALSO_A_CLASS) - self._judges_made
        for other in islice(self._line, place := self._places[pod.uid], place + max(left, 0)):
            pod_class = other.pod_class
            if (
                pod_class is None
                or pod_class.fault
                or other.nominated
                or self._coming[pod_class] != 1
                or pod_class in self._classes
                or self._is_prepared(pod_class)
            ):
                return
            yield other

    def forget_if_last(self, pod: PodRecord) -> None:
        """Let go of what is known of the pod's class once none of it is to come: a judge holds ten numbers a node."""
        self._coming[pod.pod_class] -= 1
        if not self._coming[pod.pod_class] and pod.pod_class is not None:
            self._classes.pop(pod.pod_class, None)

    def drafts(self) -> tuple[Draft, ...]:
        """The cycle's events; none when it took no pod."""
        if not self._outcomes:
            return ()
        decided = CycleDecided(cycle=self._number, pods=tuple(self._outcomes), classes=tuple(self._judged))
        return (Draft(decided), *self._events)

    def _choose(self, evaluation: ClassEvaluation, pod_hash: np.uint64, nominated: str) -> tuple[int, dict[str, str]]:
        """The best node that has what the pod needs, and what the pod gets there; -1 when there is none.

        Args:
            nominated: the node where room was made for it; if it passes, it is taken whatever its score.
        """
        row = self._cache.table.rows.get(nominated, -1) if nominated else -1
        if 0 <= row < self._snapshot.size and evaluation.total[row] >= 0:
            given = self._copies.reservers.reserve(evaluation, row)
            if given is not None:
                return row, given
        while (row := evaluation.choose(pod_hash)) >= 0:
            given = self._copies.reservers.reserve(evaluation, row)
            if given is not None:
                return row, given
        return -1, {}

    def _place(
        self, pod: PodRecord, pod_class: PodClass, row: int, score: int, judged: int, given: dict[str, str]
    ) -> None:
        self._say_placed(pod, pod_class, row, score, judged, given)
        self._count(pod, pod_class, row, given)
        predicted = not given and self._copies.matched_prediction()
        self._placements.append(Placement(row, pod_class, predicted))

    def _say_placed(
        self, pod: PodRecord, pod_class: PodClass, row: int, score: int, judged: int, given: dict[str, str]
    ) -> None:
        node = self._cache.table.names[row]
        self._outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=judged, node=node))
        placed = PodPlaced(
            pod_uid=pod.uid,
            pod=pod.name,
            node=node,
            cycle=self._number,
            request=pod_class.request,
            score=score,
            annotations=given,
        )
        self._events.append(Draft(placed, Cause("cluster", pod.since), pod.uid))

    def _count(self, pod: PodRecord, pod_class: PodClass, row: int, given: Mapping[str, str]) -> None:
        self._copies.count(pod, pod_class, row, given)
        self._kept.append((pod, pod_class, row, given))

    # preemption

    def _keep_room_from(self, pod_class: PodClass) -> None:
        """Count the pods for which room was made before those of their own and of lower priority."""
        while (
            self._nominated
            and (first := self._nominated[-1]).pod_class is not None
            and first.pod_class.priority >= pod_class.priority
        ):
            self._nominated.pop()
            self._keep_room(first, first.pod_class, first.nominated)

    def _keep_room(self, pod: PodRecord, pod_class: PodClass, node: str) -> None:
        """Count a pod on the node where room is made for it, with what it will be given there."""
        row = self._cache.table.rows.get(node, self._snapshot.size)
        if row < self._snapshot.size:
            leaving = self._preemptions.leaving_from(row, pod_class.priority)
            given = self._copies.nominate(pod, pod_class, self._profile(pod_class), row, leaving)
            self._kept.append((pod, pod_class, row, given))
            self._placements.append(Placement(row, pod_class, predicted=False))

    def _preempt(self, pod: PodRecord, evaluation: ClassEvaluation) -> None:
        """Ask pods of lower priority to give way, if that helps."""
        pod_class = evaluation.pod_class
        node = self._preemptions.node_of(pod)
        if pod_class not in self._fruitless:
            candidate = self._preemptor.victims_for(pod, evaluation, name_hash(pod.uid))
            if candidate is not None:
                cause, follows = (
                    Cause("cluster", pod.since),
                    self._preemptor.events(pod, pod_class, candidate, self._number),
                )
                self._events += [Draft(event, cause, pod.uid) for event in follows]
                node = candidate.node
            elif not node and self._preemptor.has_looked:
                self._fruitless.add(pod_class)
        if node:
            self._keep_room(pod, pod_class, node)

    def _is_prepared(self, pod_class: PodClass) -> bool:
        """Returns True where a plugin may request something before pods of the class are bound, volumes for example."""
        states = self._copies.plugin_states
        return any(states[plugin].applies_to(pod_class) for plugin in self._profile(pod_class).preparing)

    def _prepare(self, pod: PodRecord, pod_class: PodClass, row: int, evaluation: ClassEvaluation) -> bool:
        """Requests what plugins need before the pod can be bound to the node; it is tried again when that is done."""
        for plugin in evaluation.profile.preparing:
            preparation = self._copies.plugin_states[plugin].prepare(pod_class, row)
            if preparation is not None:
                cause = Cause("cluster", pod.since)
                self._events += [Draft(event, cause, pod.uid) for event in preparation.events()]
                waits = Rejections(plugin=plugin.name, code=preparation.reason, nodes=1, detail=preparation.node)
                nodes = int(self._cache.table.alive.sum())
                self._refuse(pod, self._record(ClassEvaluated(nodes=nodes, feasible=0, rejected=(waits,))))
                return True
        return False

    def _refuse(self, pod: PodRecord, judged: int) -> None:
        self._outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=judged))
        pod_class, record = pod.pod_class, self._judged[judged]
        code = main_code(record) if pod_class is None or not pod_class.fault else UNREADABLE_POD
        if code == pod.condition_code:
            return  # the pod says so already; counts that differ are no news
        told = PodUnschedulable(
            pod_uid=pod.uid,
            pod=pod.name,
            cycle=self._number,
            code=code,
            message=self._message(pod_class, record, code),
            plugins=tuple(dict.fromkeys(rejected.plugin for rejected in record.rejected)),
            attempt=pod.attempts + 1,
        )
        self._events.append(Draft(told, Cause("cluster", pod.since), pod.uid))

    def _message(self, pod_class: PodClass | None, record: ClassEvaluated, code: str) -> str:
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            return f"{text(code)}: {pod_class.fault}"
        return message(record, self._profile(pod_class).texts)

    def _record(self, judged: ClassEvaluated) -> int:
        self._judged.append(judged)
        return len(self._judged) - 1

    def _record_refusals(self, class_: _Class, pod_hash: np.uint64) -> None:
        """Records why no node takes the class, unless that is recorded already."""
        evaluation, recorded = class_.evaluation, class_.refused_by
        if (
            class_.refused_at >= 0
            and recorded is not None
            and np.array_equal(evaluation.by, recorded[0])
            and np.array_equal(evaluation.result, recorded[1])
        ):
            return
        class_.refused_at = self._record(evaluation.judged(pod_hash))
        class_.refused_by = evaluation.by.copy(), evaluation.result.copy()

    def _class(self, pod_class: PodClass) -> _Class:
        class_ = self._classes.get(pod_class)
        if class_ is None:
            evaluation = ClassEvaluation(
                self._active(self._profile(pod_class)), self._cache.table, pod_class, self._placements
            )
            class_ = self._classes[pod_class] = _Class(evaluation)
            self._judges_made += 1
            if self._coming[pod_class] >= WORTH_IT:
                evaluation.look_ahead(self._snapshot)
        return class_

    def _active(self, profile: Profile) -> ActivePlugins:
        active = self._active_by_profile.get(profile)
        if active is None:
            active = self._active_by_profile[profile] = ActivePlugins(
                profile, self._copies.plugin_states, self._snapshot
            )
        return active

    def _profile(self, pod_class: PodClass) -> Profile:
        return self._cache.profiles[pod_class.scheduler]
