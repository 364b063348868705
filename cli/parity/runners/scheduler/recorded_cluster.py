"""A scheduler in memory, fed with recorded objects as the events by which its service learns of them.

The engine is that of `koord simulate`: the service's fold, index and cycle. Arguments of plugins reach it as a
KubeSchedulerConfiguration, and incoming pods name that configuration's profile; recorded pods name none, so a cycle
tries the incoming pod alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from cli.parity.runners.scheduler.evaluation import Decided, Evaluation
from services.scheduler.cycle.cycle import decide
from services.scheduler.framework.config.checked_document import API_VERSION
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.profile import Profile
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events import Event
from shared.events.cluster import NodeObserved, ObjectObserved, PodDeleted, PodObserved
from shared.kube.node import Node
from shared.kube.pod import Pod

PROFILE = "koord-scheduler"


class Tried(NamedTuple):
    """A waiting pod, the evaluation of its class, and the cycle that tried it alone."""

    pod: Pod
    evaluation: Evaluation
    decided: Decided


class Cluster:
    """Nodes, pods and objects of a case, folded by a scheduler.

    Attributes:
        engine: the scheduler.
        profile: the plugins that the case names, each with weight 1.
        plugins: the same by name.
    """

    def __init__(self, plugins: Sequence[str], args: Mapping[str, Mapping[str, Any]]) -> None:
        """Starts a scheduler.

        Args:
            args: plugin -> its `args` in the configuration.

        Raises:
            BadConfig: production refuses the arguments.
        """
        self.engine = InMemoryScheduler(_configuration(plugins, args), "recorded case", checks_reports=False)
        self.profile: Profile = self.engine.cache.profiles[PROFILE]
        self.plugins: dict[str, Plugin] = {plugin.name: plugin for plugin in self.profile.plugins}

    def observe(self, *events: Event, at_ns: int = 0) -> None:
        """Records events of the gateway at an instant."""
        self.engine.observe(events, at_ns)

    def observe_node(self, raw: Mapping[str, Any]) -> None:
        """Observes a node that came or changed."""
        node = msgspec.convert(raw, Node)
        self.observe(NodeObserved(node=node.metadata.name, object=node))

    def observe_pod(self, pod: Pod, at_ns: int = 0) -> None:
        """Observes a pod that came or changed."""
        self.observe(PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod), at_ns=at_ns)

    def observe_object(self, resource: str, raw: Mapping[str, Any]) -> None:
        """Observes another object that came or changed."""
        metadata = raw["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        self.observe(ObjectObserved(resource=resource, name=key, uid=key, object=dict(raw)))

    def delete_pod(self, pod: Pod) -> None:
        """Observes that a pod is gone."""
        self.observe(PodDeleted(pod=pod.metadata.key, pod_uid=pod.metadata.uid))

    def evaluate(self, pod_class: PodClass, now_ns: int = 0) -> Evaluation:
        """Evaluates a class against the nodes as they stand."""
        self.engine.cache.settle()
        return Evaluation(self.engine.cache, pod_class, now_ns)

    def arrive(self, raw: Mapping[str, Any], now_ns: int = 0) -> Tried:
        """Observes a pod that waits for a node; the cycle that tries it is decided and not folded."""
        pod = incoming(raw)
        self.observe_pod(pod, now_ns)
        drafts = decide(self.engine.cache, now_ns, 1)
        pod_record = self.engine.view.pods[pod.metadata.uid]
        assert pod_record.pod_class is not None, "read by the cycle"
        evaluation = self.evaluate(pod_record.pod_class, now_ns)
        return Tried(pod, evaluation, evaluation.in_a_round(self.profile, pod.metadata.uid, drafts))

    @contextmanager
    def waiting(self, raw: Mapping[str, Any], now_ns: int = 0) -> Iterator[Tried]:
        """Observes a pod that waits for a node, and deletes it at the end."""
        tried = self.arrive(raw, now_ns)
        yield tried
        self.delete_pod(tried.pod)


def incoming(raw: Mapping[str, Any]) -> Pod:
    """Returns the pod with this scheduler's name."""
    pod = msgspec.convert(raw, Pod)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=PROFILE))


def _configuration(plugins: Sequence[str], args: Mapping[str, Mapping[str, Any]]) -> str:
    enabled = [{"name": name, "weight": 1} for name in plugins]
    profile = {
        "schedulerName": PROFILE,
        "plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": name, "args": given} for name, given in args.items()],
    }
    return json.dumps({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]})
