"""RemovePodsViolatingInterPodAntiAffinity: pods leave a topology domain with another pod that they require not to meet.

Such pods were placed before the other one had its labels, or before they had the term themselves.

Source: spec/descheduler.md 1.8.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.priority_order import priority_order
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.component_config import converted
from shared.domain.label_selectors import Matcher
from shared.domain.pod_affinity_terms import Term, affinity_term
from shared.kube.pod import Pod

Marks = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and sorted labels: what terms select by."""


class AntiAffinityArgs(NamedTuple):
    """The arguments."""

    pods: PolicyPods


def read_args(plain: Mapping[str, Any], path: str) -> AntiAffinityArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    return AntiAffinityArgs(policy_pods(converted(dict(plain), CommonDocument, path), path))


def pod_anti_affinity(context: CycleContext) -> Findings:
    """Chooses pods that meet another one against their own required terms, on each node in the order of priorities. One
    that leaves meets nobody any more.
    """
    args: AntiAffinityArgs = context.args
    listed = {node.name: [pod for pod in node.pods if args.pods.allows(pod)] for node in context.nodes}
    if not any(_terms(pod.pod) for pods in listed.values() for pod in pods):
        return Findings()
    counted = _CountedPods(context.nodes, listed, context.cluster)
    for node in context.nodes:
        for pod in sorted(listed[node.name], key=lambda each: priority_order(each.pod)):
            met = next((term for term in _terms(pod.pod) if counted.meets(pod.pod, node, term)), None)
            if met is not None and context.evictor.filter(pod):
                reason = f"it meets a pod in its domain of {met.key} against its own anti-affinity"
                if context.evictor.evict(pod, node.name, reason):
                    counted.remove(pod.pod, node)
    return Findings()


class _CountedPods:
    """Pods by what terms select by, and for each term the number of pods that it matches in each domain."""

    def __init__(
        self, nodes: Iterable[MeasuredNode], listed: Mapping[str, Iterable[PodOnNode]], cluster: ObservedCluster
    ) -> None:
        self._cluster = cluster
        self._labels = {node.name: node.node.metadata.labels or {} for node in nodes}
        self._by_marks: dict[Marks, Counter[str]] = {}
        self._matchers: dict[Term, Matcher] = {}
        self._domains: dict[tuple[Matcher, str], Counter[str]] = {}
        for name, pods in listed.items():
            for pod in pods:
                self._by_marks.setdefault(_marks(pod.pod), Counter())[name] += 1

    def meets(self, pod: Pod, node: MeasuredNode, term: Term) -> bool:
        """Reports whether a term matches another pod in the pod's domain."""
        domain = self._labels[node.name].get(term.key)
        if domain is None:
            return False
        matcher = self._matcher(term)
        return self._counts(matcher, term.key)[domain] > _matches(matcher, _marks(pod))

    def remove(self, pod: Pod, node: MeasuredNode) -> None:
        """Counts a pod no longer."""
        marks = _marks(pod)
        self._by_marks[marks][node.name] -= 1
        for (matcher, key), counts in self._domains.items():
            if (domain := self._labels[node.name].get(key)) is not None and _matches(matcher, marks):
                counts[domain] -= 1

    def _matcher(self, term: Term) -> Matcher:
        if term not in self._matchers:
            self._matchers[term] = term.matcher(self._cluster.namespaces_selected)
        return self._matchers[term]

    def _counts(self, matcher: Matcher, key: str) -> Counter[str]:
        counts = self._domains.get((matcher, key))
        if counts is None:
            counts = self._domains[matcher, key] = Counter()
            for marks, by_node in self._by_marks.items():
                if _matches(matcher, marks):
                    for name, count in by_node.items():
                        if (domain := self._labels[name].get(key)) is not None:
                            counts[domain] += count
        return counts


def _terms(pod: Pod) -> list[Term]:
    """Returns the required anti-affinity terms of a pod."""
    affinity = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
    if not affinity:
        return []
    metadata = pod.metadata
    return [affinity_term(each, metadata.namespace, metadata.labels or {}) for each in affinity.required]


def _marks(pod: Pod) -> Marks:
    return pod.metadata.namespace, tuple(sorted((pod.metadata.labels or {}).items()))


def _matches(matcher: Matcher, marks: Marks) -> bool:
    return matcher.matches(marks[0], dict(marks[1]))
