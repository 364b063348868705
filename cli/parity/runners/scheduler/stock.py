"""The `stock` cases: kube-scheduler's own plugins, one at a time and all together, over whole clusters.

Cluster, running pods and incoming pod are events; filters, scores and the nodes that pass are those of the fused
evaluation, and the cycle that tries the pod has to record the same. An incoming pod that names a node is no pod for a
cycle (in a cluster it runs there already), so its class is evaluated without one. `nodeNames`, by which upstream
shortens its list of candidates, has no counterpart: what it leaves out shows in `feasible`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from cli.parity.runners.scheduler.evaluation import Evaluation, Scores, agree
from cli.parity.runners.scheduler.recorded_cluster import Cluster
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.plugins.node_affinity.plugin import NodeAffinity
from services.scheduler.plugins.node_ports.plugin import NodePorts
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
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
_ALWAYS_RUN = ("NodeResourcesFit",)
_NO_PRE_SCORE = ("ImageLocality",)  # upstream records 0 on every node where ours has no score, which adds as much


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    cluster = StockCluster(given)
    if op == "cluster":
        return {"incoming": [cluster.evaluated(raw) for raw in given["incoming"]]}
    with cluster.incoming(given["pod"]) as pod:
        if op == "interPodScore":
            return {"scores": pod.scores("InterPodAffinity")}
        return {
            "NodeResourcesFit": {**pod.filtered("NodeResourcesFit"), "scores": pod.scores("NodeResourcesFit")},
            "NodeResourcesBalancedAllocation": {"scores": pod.scores("NodeResourcesBalancedAllocation")},
        }


class StockCluster(Cluster):
    """A recorded cluster."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(tuple(dict.fromkeys((*FILTERS, *SCORERS))), given["pluginArgs"])
        for resource in ("namespaces", "services"):
            for raw in given.get(resource, ()):
                self.observe_object(resource, raw)
        for raw in given["nodes"]:
            self.observe_node(raw)
        for pod in msgspec.convert(given["pods"], list[Pod]):
            self.observe_pod(pod)
        self.nodes = [raw["metadata"]["name"] for raw in given["nodes"]]

    @contextmanager
    def incoming(self, raw: Mapping[str, Any]) -> Iterator["Incoming"]:
        """Evaluates a pod that waits for a node; where it names none, a cycle tries it."""
        if raw["spec"].get("nodeName"):
            yield Incoming(self, self.evaluate(_class_with_node(raw)))
            return
        with self.waiting(raw) as tried:
            yield Incoming(self, tried.evaluation)

    def evaluated(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Runs all plugins on one pod."""
        with self.incoming(raw) as pod:
            plugins = {name: pod.filtered(name) for name in FILTERS}
            evaluation = pod.evaluation.by_profile(self.profile)
            passed = set(pod.evaluation.names(evaluation.feasible()))
            feasible = [name for name in self.nodes if name in passed]
            agree(
                "feasible",
                feasible,
                [n for n in self.nodes if not any(n in found["fail"] for found in plugins.values())],
            )
            found: dict[str, Any] = {"plugins": plugins, "feasible": feasible}
            if feasible:
                found["scores"] = pod.all_scores(evaluation)
            if len(feasible) < len(self.nodes):
                found["scoresOverAllNodes"] = pod.all_scores(pod.without_filters(SCORERS))
            return found


class Incoming:
    """One pod and the plugins of its cluster.

    Attributes:
        evaluation: of its class.
    """

    def __init__(self, cluster: StockCluster, evaluation: Evaluation) -> None:
        self._plugins = cluster.plugins
        self._size = cluster.engine.cache.table.size
        self.evaluation = evaluation

    def filtered(self, name: str) -> dict[str, Any]:
        """Returns the nodes that a plugin rejects, and PreFilter's outcome."""
        plugin = self._plugins[name]
        fail = {node: refusal.status() for node, refusal in self.evaluation.refusals(plugin).items()}
        if name in _NEVER_SKIPPED:
            return {"fail": fail}
        return {"fail": fail, "preFilter": "Success" if self._filters(plugin) else "Skip"}

    def scores(self, name: str) -> dict[str, int] | str:
        """Returns a plugin's scores of all nodes."""
        evaluation = self.without_filters((name,))
        return self._shaped(name, evaluation, self.evaluation.scores(evaluation))

    def all_scores(self, evaluation: ClassEvaluation) -> dict[str, dict[str, int] | str]:
        """Returns all plugins' scores of the nodes that are feasible there."""
        found = self.evaluation.scores(evaluation)
        return {name: self._shaped(name, evaluation, found) for name in SCORERS}

    def without_filters(self, names: Sequence[str]) -> ClassEvaluation:
        """Evaluates with all nodes feasible."""
        return self.evaluation.evaluate((), [self._plugins[name] for name in names])

    def _shaped(self, name: str, evaluation: ClassEvaluation, found: Scores) -> dict[str, int] | str:
        plugin = self._plugins[name]
        if isinstance(plugin, NodeAffinity) and not plugin.prefers(self.evaluation.pod_class):
            return "Skip"
        if name in found:
            return dict(found[name])
        return dict.fromkeys(self.evaluation.names(evaluation.feasible()), 0) if name in _NO_PRE_SCORE else "Skip"

    def _filters(self, plugin: Plugin) -> bool:
        """Returns true if the plugin has anything to filter for the class, by the functions that production calls for
        it.
        """
        pod_class = self.evaluation.pod_class
        if plugin.name in _ALWAYS_RUN:
            return True
        if isinstance(plugin, NodeAffinity):
            return plugin.requires(pod_class)
        state = self.evaluation.transaction.plugin_states[plugin]
        if isinstance(plugin, NodePorts):
            return state.applies_to(pod_class)
        return state.filter(pod_class, slice(0, self._size)) is not None


def _class_with_node(raw: Mapping[str, Any]) -> PodClass:
    """Returns the class of a pod that names its node; classes of pods that wait name none."""
    pod = msgspec.convert(raw, Pod)
    common = common_part(pod)
    named = msgspec.structs.replace(common, spec=msgspec.structs.replace(common.spec, node_name=pod.spec.node_name))
    return PodClass(class_key(named), named)
