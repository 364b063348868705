"""Runs one plugin as a cycle does, over the nodes and pods of a test."""

from collections.abc import Mapping, Sequence

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.profile import Profile, Scorer
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.support.pods import observed


class PluginHarness:
    """A plugin with its cache, fed by events."""

    def __init__(
        self, plugin: Plugin, nodes: Sequence[Node], pods: Sequence[Pod] = (), objects: Sequence[ObjectObserved] = ()
    ) -> None:
        self.plugin = plugin
        self.view = SchedulerState()
        self.cache = CycleInputs(
            self.view, {"one": Profile("one", (plugin,), (Scorer(plugin, 1),))}, believes_annotations=True
        )
        self._seq = 0
        self.see(*objects)
        self.see(*(NodeObserved(node=node.metadata.name, object=node) for node in nodes))
        self.see(*(observed(pod) for pod in pods))

    def see(self, *events: Event) -> None:
        for event in events:
            self._seq += 1
            self.view.apply(RecordedEvent("cluster", self._seq, event, self._seq, None))
        self.cache.settle()

    def new_state(self) -> PluginCycleState:
        cache = self.cache
        return self.plugin.new_state(
            CycleSnapshot(cache.table, cache.pod_index, cache.cluster_objects), cache.plugin_caches[self.plugin], 0
        )

    def scores(self, pod: Pod) -> Mapping[str, int]:
        """Node -> score, of all nodes at once and of each one, which must be equal."""
        pod_class, state = class_of(pod), self.new_state()
        found = state.score(pod_class, slice(0, self.cache.table.size))
        scores = {name: 0 if found is None else int(found[row]) for name, row in self.cache.table.rows.items()}
        assert scores == {name: state.score_at(pod_class, row) for name, row in self.cache.table.rows.items()}
        return scores

    def refusals(self, pod: Pod) -> Mapping[str, tuple[str, ...]]:
        """Node -> codes of the reasons that refuse it, of refused ones."""
        pod_class, state = class_of(pod), self.new_state()
        found = state.filter(pod_class, slice(0, self.cache.table.size))
        results = {name: 0 if found is None else int(found[row]) for name, row in self.cache.table.rows.items()}
        assert results == {name: state.filter_at(pod_class, row) for name, row in self.cache.table.rows.items()}
        return {
            name: tuple(reason.code for reason in self.plugin.reasons(pod_class, result))
            for name, result in results.items()
            if result
        }


def class_of(pod: Pod) -> PodClass:
    return PodClass(class_key(pod), common_part(pod))
