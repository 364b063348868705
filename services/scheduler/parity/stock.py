"""The `stock` vectors: kube-scheduler's own plugins, one at a time and all together, over whole clusters.

A cluster is folded event by event into a view and an index, as the scheduler's service does it; then each plugin of a profile is asked as a
round asks it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from services.scheduler.ask import PodAsk, ask_key, common_part
from services.scheduler.framework import Plugin, Profile, normalized
from services.scheduler.index import Index
from services.scheduler.kernels.rows import Bools, Int64
from services.scheduler.plugins.node_affinity import NodeAffinity
from services.scheduler.reasons import text
from services.scheduler.registry import PLUGINS
from services.scheduler.room import Room
from services.scheduler.state import ClusterView
from services.scheduler.trials import Trial, WideTrial
from shared.events import Event, Recorded
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.kube.node import Node
from shared.kube.pod import Pod

FILTERS = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread",
    "InterPodAffinity",
)  # fmt: skip
SCORERS = (
    "TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity",
    "NodeResourcesBalancedAllocation", "ImageLocality",
)  # fmt: skip
_NEVER_SKIPPED = ("NodeUnschedulable", "NodeName", "TaintToleration")  # upstream gives these no PreFilter
_ALWAYS_ASKED = ("NodeResourcesFit",)
_ALWAYS_SCORED = ("TaintToleration", "NodeResourcesFit", "ImageLocality")


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    cluster = Cluster(given)
    if op == "cluster":
        return {"incoming": [cluster.judge(pod) for pod in given["incoming"]]}
    pod = given["pod"]
    if op == "interPodScore":
        return {"scores": cluster.scores("InterPodAffinity", pod, cluster.everywhere())}
    fit = cluster.filtered("NodeResourcesFit", pod)
    return {
        "NodeResourcesFit": {**fit, "scores": cluster.scores("NodeResourcesFit", pod, cluster.everywhere())},
        "NodeResourcesBalancedAllocation": {
            "scores": cluster.scores("NodeResourcesBalancedAllocation", pod, cluster.everywhere())
        },
    }


class Cluster:
    """A cluster as the scheduler knows it, and what its plugins say of a pod.

    Attributes:
        plugins: name -> the plugin with the case's arguments.
        index: what their trials read.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        args = given["pluginArgs"]
        self.plugins = {
            name: PLUGINS[name].make(args.get(name, {}), name)
            for name in dict.fromkeys((*FILTERS, *SCORERS))
            if name in PLUGINS
        }
        view = ClusterView()
        for seq, event in enumerate(_events(given), 1):
            view.apply(Recorded("cluster", seq, event, seq, None))
        profile = Profile("parity", tuple(self.plugins.values()), ())
        self.index = Index(view, {"parity": profile})
        self.index.settle()
        self._size = self.index.table.size
        self._order = [node["metadata"]["name"] for node in given["nodes"]]

    def everywhere(self) -> Bools:
        """All nodes, as if each were feasible."""
        return self.index.table.alive[: self._size].copy()

    def judge(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """All plugins on one incoming pod."""
        plugins: dict[str, Any] = {name: self.filtered(name, raw) for name in FILTERS}
        feasible = self.everywhere()
        rows = self.index.table.rows
        for said in plugins.values():
            feasible[[rows[name] for name in said["fail"]]] = False
            if "nodeNames" in said:
                feasible &= self._named(said["nodeNames"])
        answer: dict[str, Any] = {"plugins": plugins, "feasible": self._names(feasible)}
        if feasible.any():
            answer["scores"] = {name: self.scores(name, raw, feasible) for name in SCORERS}
        if not np.array_equal(feasible, self.everywhere()):
            answer["scoresOverAllNodes"] = {name: self.scores(name, raw, self.everywhere()) for name in SCORERS}
        return answer

    def filtered(self, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
        """What a plugin filters: its PreFilter's outcome, and the nodes that fail."""
        plugin, ask = self.plugins[name], ask_of(raw)
        verdicts = self._trial(plugin).filter(ask, slice(0, self._size))
        found = np.zeros(self._size, np.int64) if verdicts is None else verdicts
        said: dict[str, Any] = {
            "fail": {
                node: _failure(plugin, ask, int(found[row]))
                for node, row in self.index.table.rows.items()
                if found[row]
            }
        }
        if name not in _NEVER_SKIPPED:
            said["preFilter"] = "Success" if self._asked(plugin, ask, verdicts) else "Skip"
        if isinstance(plugin, NodeAffinity) and (names := plugin.named_nodes(ask)) is not None:
            said["nodeNames"] = sorted(names)
        return said

    def scores(self, name: str, raw: Mapping[str, Any], feasible: Bools) -> dict[str, int] | str:
        """What a plugin scores the feasible nodes with, normalised."""
        plugin, ask = self.plugins[name], ask_of(raw)
        found = _scores(plugin, self._trial(plugin), ask, feasible)
        if found is None or (isinstance(plugin, NodeAffinity) and not plugin.prefers(ask)):
            if name not in _ALWAYS_SCORED:
                return "Skip"
            found = normalized(np.zeros(self._size, np.int64), 0, plugin.normalize)
        return {node: int(found[row]) for node, row in self.index.table.rows.items() if feasible[row]}

    def _asked(self, plugin: Plugin, ask: PodAsk, verdicts: Int64 | None) -> bool:
        if plugin.name in _ALWAYS_ASKED:
            return True
        if plugin.name == "NodePorts":
            return bool(ask.ports)
        if isinstance(plugin, NodeAffinity):
            return plugin.requires(ask)
        return verdicts is not None

    def _trial(self, plugin: Plugin) -> Trial:
        index = self.index
        return plugin.trial(Room(index.table, index.book, index.surroundings), index.ledgers[plugin], 0)

    def _named(self, names: Iterable[str]) -> Bools:
        named = np.zeros(self._size, np.bool_)
        named[[self.index.table.rows[name] for name in names if name in self.index.table.rows]] = True
        return named

    def _names(self, rows: Bools) -> list[str]:
        return [name for name in self._order if rows[self.index.table.rows[name]]]


def ask_of(raw: Mapping[str, Any]) -> PodAsk:
    """The pod's class; a recorded one may name a node, which a class does not."""
    pod = msgspec.convert(raw, Pod)
    common = common_part(pod)
    spec = msgspec.structs.replace(common.spec, node_name=pod.spec.node_name)
    named = msgspec.structs.replace(common, spec=spec)
    return PodAsk(ask_key(named), named)


def _events(given: Mapping[str, Any]) -> Iterator[Event]:
    for resource in ("namespaces", "services"):
        for raw in given.get(resource, ()):
            metadata = raw["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
            yield ObjectObserved(resource=resource, name=key, uid=key, object=dict(raw))
    for node in msgspec.convert(given["nodes"], list[Node]):
        yield NodeObserved(node=node.metadata.name, object=node)
    for pod in msgspec.convert(given["pods"], list[Pod]):
        yield PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod)


def _failure(plugin: Plugin, ask: PodAsk, verdict: int) -> dict[str, Any]:
    return {
        "code": "UnschedulableAndUnresolvable" if plugin.hopeless(ask, verdict) else "Unschedulable",
        "reasons": sorted(text(*reason) for reason in plugin.reasons(ask, verdict)),
    }


def _scores(plugin: Plugin, trial: Trial, ask: PodAsk, feasible: Bools) -> Int64 | None:
    if plugin.wide:
        assert isinstance(trial, WideTrial), "the trials of wide plugins are"
        return trial.scores(ask, feasible)
    raw = trial.score(ask, slice(0, len(feasible)))
    return None if raw is None else normalized(raw, int(raw[feasible].max(initial=0)), plugin.normalize)
