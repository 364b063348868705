"""One plugin asked as a cycle asks it, over nodes and pods that a test gives."""

from collections.abc import Mapping, Sequence

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import Plugin, Profile, Scorer
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.state.cluster_view import ClusterView
from services.scheduler.state.pod_class import PodAsk, ask_key, common_part
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.support.pods import observed


class OnePlugin:
    """A plugin with its ledger, fed by events."""

    def __init__(
        self, plugin: Plugin, nodes: Sequence[Node], pods: Sequence[Pod] = (), objects: Sequence[ObjectObserved] = ()
    ) -> None:
        self.plugin = plugin
        self.view = ClusterView()
        self.index = Index(self.view, {"one": Profile("one", (plugin,), (Scorer(plugin, 1),))})
        self._seq = 0
        self.see(*objects)
        self.see(*(NodeObserved(node=node.metadata.name, object=node) for node in nodes))
        self.see(*(observed(pod) for pod in pods))

    def see(self, *events: Event) -> None:
        for event in events:
            self._seq += 1
            self.view.apply(RecordedEvent("cluster", self._seq, event, self._seq, None))
        self.index.settle()

    def new_state(self) -> PluginState:
        index = self.index
        return self.plugin.new_state(Room(index.table, index.book, index.surroundings), index.ledgers[self.plugin], 0)

    def scores(self, pod: Pod) -> Mapping[str, int]:
        """Node -> score, asked of all at once and of each alone, which must be the same."""
        ask, state = ask_of(pod), self.new_state()
        found = state.score(ask, slice(0, self.index.table.size))
        scores = {name: 0 if found is None else int(found[row]) for name, row in self.index.table.rows.items()}
        assert scores == {name: state.score_at(ask, row) for name, row in self.index.table.rows.items()}
        return scores

    def refusals(self, pod: Pod) -> Mapping[str, tuple[str, ...]]:
        """Node -> codes of the reasons that refuse it, of refused ones."""
        ask, state = ask_of(pod), self.new_state()
        found = state.filter(ask, slice(0, self.index.table.size))
        verdicts = {name: 0 if found is None else int(found[row]) for name, row in self.index.table.rows.items()}
        assert verdicts == {name: state.filter_at(ask, row) for name, row in self.index.table.rows.items()}
        return {
            name: tuple(reason.code for reason in self.plugin.reasons(ask, verdict))
            for name, verdict in verdicts.items()
            if verdict
        }


def ask_of(pod: Pod) -> PodAsk:
    return PodAsk(ask_key(pod), common_part(pod))
