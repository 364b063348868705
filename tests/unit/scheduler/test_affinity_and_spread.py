"""Spread and affinity between pods are counted; the results equal those of reading every pod, after any history."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.configuration import read_config
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.plugin_extension_points import PluginCycleState, on_all_rows
from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved, PodDeleted, PodObserved
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.support.pods import observed
from tests.unit.scheduler import plain_affinity_and_spread as plain
from tests.unit.scheduler.cluster_worlds import NAMESPACES, nodes, pods

WIDE = ("PodTopologySpread", "InterPodAffinity")
SPACES: Mapping[str, Mapping[str, str]] = {"d": {"env": "live"}, "e": {}}


class Cluster:
    """A view and its cache; states of the cross-node plugins."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.view = SchedulerState()
        self.play(*(namespace(name, SPACES[name]) for name in NAMESPACES), *events)
        self.cache = CycleInputs(self.view, read_config(DEFAULT_PROFILE).profiles)

    def play(self, *events: Event) -> None:
        for event in events:
            seq = self.view.positions.get("cluster", 0) + 1
            self.view.apply(RecordedEvent("cluster", seq, event, seq, None))

    def transaction(self) -> CycleTransaction:
        self.cache.settle()
        return CycleTransaction(self.cache, 0)

    def plugin_states(self, transaction: CycleTransaction) -> dict[str, PluginCycleState]:
        return {plugin.name: state for plugin, state in transaction.plugin_states.items() if plugin.name in WIDE}

    def results_of(
        self, pod_class: PodClass, plugin_states: Mapping[str, PluginCycleState] | None = None
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """Plugin -> node -> (filter result, score over all nodes)."""
        plugin_states = plugin_states or self.plugin_states(self.transaction())
        table = self.cache.table
        size, everywhere = table.size, table.alive[: table.size].copy()
        return {
            name: {
                node: (result, score)
                for node, row in sorted(table.rows.items())
                if everywhere[row]
                for result, score in [
                    (filtered(state, pod_class, size)[row], scored(state, pod_class, everywhere)[row])
                ]
            }
            for name, state in plugin_states.items()
        }


def filtered(state: PluginCycleState, pod_class: PodClass, size: int) -> list[int]:
    results = state.filter(pod_class, slice(0, size))
    return [0] * size if results is None else results.tolist()


def scored(state: PluginCycleState, pod_class: PodClass, feasible: Bools) -> list[int]:
    scores = state.scores(pod_class, feasible)
    every = np.zeros(len(feasible), np.int64) if scores is None else on_all_rows(scores, len(feasible))
    return [int(score) for score in np.where(feasible, every, 0)]


def namespace(name: str, labels: Mapping[str, str]) -> ObjectObserved:
    return ObjectObserved(resource="namespaces", name=name, uid=name, object={"metadata": {"labels": dict(labels)}})


def seen(pod: Pod) -> PodObserved:
    return observed(pod)


def seen_node(node: Node) -> NodeObserved:
    return NodeObserved(node=node.metadata.name, object=node)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[tuple[Node, Pod]]]:
    """A few nodes, and pods that run on them."""
    drawn = [draw(nodes(number)) for number in range(draw(st.integers(1, 6)))]
    running = []
    for number in range(draw(st.integers(0, 8))):
        node = draw(st.sampled_from(drawn))
        ending = draw(st.integers(0, 5)) == 0
        running.append((node, draw(pods(f"r{number}", node.metadata.name, ending=ending))))
    return drawn, running


def cluster_of(drawn: Sequence[Node], running: Sequence[tuple[Node, Pod]]) -> Cluster:
    return Cluster([*map(seen_node, drawn), *(seen(pod) for _, pod in running)])


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), pods("p"))
def test_counts_equal_those_of_reading_every_pod(world: tuple[list[Node], list[tuple[Node, Pod]]], pod: Pod) -> None:
    drawn, running = world
    found = cluster_of(drawn, running).results_of(class_of(pod))
    spread, affinity = found["PodTopologySpread"], found["InterPodAffinity"]
    names = [node.metadata.name for node in drawn]
    assert [spread[name][0] for name in names] == [plain.spread_result(pod, n, drawn, running) for n in drawn]
    assert [affinity[name][0] for name in names] == [plain.affinity_result(pod, n, running, SPACES) for n in drawn]
    assert [affinity[name][1] for name in names] == plain.affinity_scores(pod, drawn, running, SPACES)
    if plain.of_action(pod, "ScheduleAnyway"):
        assert [spread[name][1] for name in names] == plain.spread_scores(pod, drawn, drawn, running)


@settings(max_examples=examples(150), deadline=None)
@given(clusters(), st.lists(pods("p"), min_size=1, max_size=3), st.data())
def test_a_placement_in_a_cycle_counts_as_the_pod_running_there(
    world: tuple[list[Node], list[tuple[Node, Pod]]], evaluated: list[Pod], data: st.DataObject
) -> None:
    drawn, running = world
    cluster = cluster_of(drawn, running)
    transaction = cluster.transaction()
    plugin_states = cluster.plugin_states(transaction)
    pod_classes = [class_of(pod) for pod in evaluated]
    placed: list[tuple[Node, Pod]] = []
    for number in range(data.draw(st.integers(1, 4))):
        for pod_class in pod_classes:
            if data.draw(st.booleans()):
                cluster.results_of(pod_class, plugin_states)  # some are evaluated before a placement, some only after
        node = data.draw(st.sampled_from(drawn))
        pod = data.draw(pods(f"q{number}", node.metadata.name))
        placed.append((node, pod))
        row = cluster.cache.table.rows[node.metadata.name]
        transaction.place(PodRecord(pod.metadata.uid), class_of(pod), row, {})
    later = cluster_of(drawn, [*running, *placed])
    for pod_class in pod_classes:
        assert cluster.results_of(pod_class, plugin_states) == later.results_of(pod_class)


@settings(max_examples=examples(100), deadline=None)
@given(clusters(), st.lists(pods("p"), min_size=1, max_size=3), st.data())
def test_after_any_history_the_counts_are_those_from_scratch(
    world: tuple[list[Node], list[tuple[Node, Pod]]], evaluated: list[Pod], data: st.DataObject
) -> None:
    drawn, running = world
    cluster = cluster_of(drawn, running)
    pod_classes = [class_of(pod) for pod in evaluated]
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            cluster.results_of(data.draw(st.sampled_from(pod_classes)))  # counts begin to be kept
        cluster.play(*data.draw(changes(drawn)))
    scratch = Cluster()
    scratch.view = SchedulerState()
    scratch.view.restore(cluster.view.encode())
    scratch.cache = CycleInputs(scratch.view, read_config(DEFAULT_PROFILE).profiles)
    for pod_class in pod_classes:
        assert cluster.results_of(pod_class) == scratch.results_of(pod_class)


@st.composite
def changes(draw: st.DrawFn, drawn: Sequence[Node]) -> tuple[Event, ...]:
    """A pod comes, changes, ends or goes; a node changes, goes or comes back; a namespace changes its labels."""
    node = draw(st.sampled_from(drawn))
    name = f"r{draw(st.integers(0, 8))}"
    match draw(st.integers(0, 6)):
        case 0:
            return (PodDeleted(pod=f"d/{name}", pod_uid=name),)
        case 1:
            return (seen_node(draw(nodes(int(node.metadata.name[1:])))),)
        case 2:
            return (NodeDeleted(node=node.metadata.name, node_uid=node.metadata.uid),)
        case 3:
            space = draw(st.sampled_from(NAMESPACES))
            labels = draw(st.sampled_from(({"env": "live"}, {}, {"env": "test"})))
            return (
                (namespace(space, labels),)
                if labels
                else (ObjectDeleted(resource="namespaces", name=space, uid=space),)
            )
        case _:
            return (seen(draw(pods(name, node.metadata.name, ending=draw(st.booleans())))),)


def class_of(pod: Pod) -> PodClass:
    common = common_part(pod)
    return PodClass(class_key(common), common)
