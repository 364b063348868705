"""Places another scheduler's pods as if our choices had been carried out.

Shadow mode evaluates each pod on the cluster as the other scheduler has filled it. A node that it neglects is our best
choice there again and again, so single comparisons do not add up to a load. Here the pods are decided again in their
order, on the cluster with our earlier choices in place of theirs. All else stays as it was, measured load included: it
was measured with the pods where they ran.
"""

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.shadow.compare import Binding, compare
from services.scheduler.shadow.follow import pod_class_of
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import RecordedEvent
from shared.events.cluster import PodObserved
from shared.events.scheduling import PlacementCompared


class CounterfactualCluster:
    """A cluster in which our choices were carried out: a fold over what was observed.

    Attributes:
        nodes: uid of a compared pod -> its node there; the real one where none passed our filters.
    """

    def __init__(self, compared: Iterable[PlacementCompared], configs: Iterable[RecordedEvent]) -> None:
        """Begins before the first event.

        Args:
            compared: the pods to decide again.
            configs: ConfigApplied of `scheduling`, in order; each comparison has the one that was in force for it.
        """
        self.nodes: dict[str, str] = {}
        self._compared = {found.pod_uid: found for found in compared}
        self._configs = deque(configs)
        self._view = SchedulerState()
        self._cache: CycleInputs | None = None

    def apply(self, record: RecordedEvent) -> None:
        """Folds one observation."""
        event = record.event
        if isinstance(event, PodObserved) and event.pod_uid in self._compared and event.object.spec.node_name:
            if event.pod_uid not in self.nodes:
                self.nodes[event.pod_uid] = self._decide(record, event)
            record = _moved(record, event, self.nodes[event.pod_uid])
        self._view.apply(record)

    def _decide(self, record: RecordedEvent, event: PodObserved) -> str:
        real, pod_class = event.object.spec.node_name, pod_class_of(self._view, event)
        cache = self._configured(self._compared[event.pod_uid].as_of.get("scheduling", 0))
        found = compare(cache, Binding(event.pod_uid, event.pod, pod_class, real, record.seq, record.at_ns))
        return found.our_node or real

    def _configured(self, upto: int) -> CycleInputs:
        """Returns the cache under the configuration that was in force at that `scheduling` seq."""
        while self._configs and self._configs[0].seq <= upto:
            self._view.apply(self._configs.popleft())
            self._cache = None
        if self._cache is None:
            self._cache = CycleInputs(self._view, config_of(self._view).profiles, believes_annotations=True)
        return self._cache


def _moved(record: RecordedEvent, event: PodObserved, node: str) -> RecordedEvent:
    pod = event.object
    return replace(record, event=replace(event, object=replace(pod, spec=replace(pod.spec, node_name=node))))
