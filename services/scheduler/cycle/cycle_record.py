"""The record of a cycle: the evaluation of each class, the outcome of each pod, and the events that follow from it."""

from collections.abc import Iterable, Mapping

from services.scheduler.cycle.condition_message import main_code, message
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.reasons import UNREADABLE_POD, text
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from shared.events import Cause, Draft, Event
from shared.events.scheduling import ClassEvaluated, CycleDecided, PodOutcome, PodPlaced, PodUnschedulable


class CycleRecord:
    """The events of one cycle, in the order of its decisions."""

    def __init__(self, cache: CycleInputs) -> None:
        self._cache = cache
        self.cycle = cache.view.cycle + 1
        self._evaluations: list[ClassEvaluated] = []
        self._outcomes: list[PodOutcome] = []
        self._events: list[Draft] = []

    def __bool__(self) -> bool:
        """Returns True once a pod has an outcome."""
        return bool(self._outcomes)

    def drafts(self) -> tuple[Draft, ...]:
        """Returns the cycle's events, CycleDecided first; none when no pod has an outcome."""
        if not self._outcomes:
            return ()
        decided = CycleDecided(cycle=self.cycle, pods=tuple(self._outcomes), classes=tuple(self._evaluations))
        return (Draft(decided), *self._events)

    def evaluated(self, evaluation: ClassEvaluated) -> int:
        """Records the evaluation of a class; returns the index by which outcomes refer to it."""
        self._evaluations.append(evaluation)
        return len(self._evaluations) - 1

    def placed(
        self, pod: PodRecord, pod_class: PodClass, row: int, score: int, class_index: int, allocation: Mapping[str, str]
    ) -> None:
        """Records that a pod is placed on the node of a row."""
        node = self._cache.table.names[row]
        self._outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=class_index, node=node))
        event = PodPlaced(
            pod_uid=pod.uid,
            pod=pod.name,
            node=node,
            cycle=self.cycle,
            request=pod_class.request,
            score=score,
            annotations=dict(allocation),
        )
        self.follow_up(pod, (event,))

    def refused(self, pod: PodRecord, class_index: int) -> None:
        """Records that no node admits a pod, and its condition where the code changes."""
        self._outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=class_index))
        pod_class, evaluation = pod.pod_class, self._evaluations[class_index]
        assert pod_class is not None, "only pods that have been read are queued"
        code = UNREADABLE_POD if pod_class.fault else main_code(evaluation)
        if code == pod.condition_code:
            return  # the condition has this code already; other counts of nodes are not worth a write
        if pod_class.fault:
            words = f"{text(code)}: {pod_class.fault}"
        else:
            words = message(evaluation, self._cache.profiles[pod_class.scheduler].texts)
        event = PodUnschedulable(
            pod_uid=pod.uid,
            pod=pod.name,
            cycle=self.cycle,
            code=code,
            message=words,
            plugins=tuple(dict.fromkeys(rejected.plugin for rejected in evaluation.rejected)),
            attempt=pod.attempts + 1,
        )
        self.follow_up(pod, (event,))

    def follow_up(self, pod: PodRecord, events: Iterable[Event]) -> None:
        """Records events that a decision about a pod causes."""
        cause = Cause("cluster", pod.since)
        self._events += [Draft(event, cause, pod.uid) for event in events]
