"""Follows another scheduler: each of its bindings is compared with our choice, just before the binding is folded.

While this replica leads, `Shadow.look` is called with every record before its fold. For a binding of a pod of that
scheduler the cache is settled, the pod is evaluated, and the comparison waits to be appended. Bindings that came before
that was possible (no replica led, the gateway had not listed everything, the cache was being built) are not compared;
`koord shadow report` counts them.
"""

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.shadow.compare import Binding, compare
from services.scheduler.state.pod_equivalence_class import SCHEDULER_NAME, PodClass, class_key, common_part
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause, Draft, RecordedEvent
from shared.events.cluster import PodObserved
from shared.kube.pod import Pod

MAX_PER_APPEND = 256
"""Comparisons of one append."""


class Shadow:
    """The comparisons of another scheduler's bindings that are not appended yet."""

    def __init__(self, view: SchedulerState) -> None:
        self._view = view
        self._scheduler = ""
        self._cache: CycleInputs | None = None
        self._config = ""
        self._drafts: list[Draft] = []

    def use_cache(self, cache: CycleInputs | None, config_digest: str = "", scheduler: str = "") -> None:
        """Compares that scheduler's bindings by a settled cache, made for this configuration; None while there is
        none.
        """
        self._cache = cache if scheduler else None
        self._config, self._scheduler = config_digest, scheduler

    def look(self, record: RecordedEvent) -> None:
        """Compares a record that is about to be folded, if it is a binding by that scheduler."""
        event = record.event
        if (
            type(event) is PodObserved
            and event.object.spec.node_name
            and self._cache is not None
            and self._view.config_digest == self._config
            and (pod_class := self._bound_just_now(event)) is not None
        ):
            binding = Binding(
                event.pod_uid, event.pod, pod_class, event.object.spec.node_name, seq=record.seq, at_ns=record.at_ns
            )
            compared = compare(self._cache, binding)
            self._drafts.append(Draft(compared, Cause(record.context, record.seq), event.pod_uid))

    def take(self) -> tuple[Draft, ...]:
        """Returns the next comparisons to append."""
        taken, self._drafts = tuple(self._drafts[:MAX_PER_APPEND]), self._drafts[MAX_PER_APPEND:]
        return taken

    def _bound_just_now(self, event: PodObserved) -> PodClass | None:
        """Returns the pod's class if the observation is the first of its binding by that scheduler; None otherwise."""
        view, pod = self._view, event.object
        if ((pod.metadata.labels or {}).get(SCHEDULER_NAME) or pod.spec.scheduler_name) != self._scheduler:
            return None
        # The gateway still records what happened before it started. Both are 0 when retention has dropped them: that
        # was long ago.
        if view.listed_seq < view.gateway_since:
            return None
        pod_record = view.pods.get(event.pod_uid)
        if pod_record is None or not pod_record.since:
            return pod_class_of(view, event) if _was_scheduled(pod) else None
        if pod_record.node or pod_record.compared or pod_record.assignment() is not None:
            return None
        return pod_class_of(view, event)


def pod_class_of(view: SchedulerState, event: PodObserved) -> PodClass:
    """Returns a pod's class as of before this observation; of the observation itself if it is the first."""
    view.read()
    pod_record = view.pods.get(event.pod_uid)
    if pod_record is not None and pod_record.pod_class is not None:
        return pod_record.pod_class
    key = class_key(event.object)
    return view.pod_classes.get(key) or PodClass(key, common_part(event.object))


def _was_scheduled(pod: Pod) -> bool:
    """Returns True for a pod that was bound before its first observation; a static pod names its node itself."""
    condition = pod.condition("PodScheduled")
    return condition is not None and condition.status == "True"
