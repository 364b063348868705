"""RemoveDuplicates: pods of one owner spread over the nodes that admit them.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.framework.node_affinity_and_taints import selects_node, tolerates_taints
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.pod_status_facts import has_owner_of
from shared.domain.component_config import converted

FEWEST_NODES = 2
Key = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind and name of the owner, and the sorted images."""


class _Document(CommonDocument):
    exclude_owner_kinds: list[str] = field(default_factory=list)


class DuplicateArgs(NamedTuple):
    """The arguments."""

    pods: PolicyPods
    excluded_kinds: frozenset[str]


def read_args(plain: Mapping[str, Any], path: str) -> DuplicateArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    return DuplicateArgs(policy_pods(given, path), frozenset(given.exclude_owner_kinds))


def remove_duplicates(context: CycleContext) -> Findings:
    """Chooses the surplus of each node: more than an even share, rounded up, of the nodes that admit the pods. The first
    pod of a node is never chosen.
    """
    args: DuplicateArgs = context.args
    groups: dict[Key, dict[str, list[PodOnNode]]] = {}
    for node in context.nodes:
        for pod in node.pods:
            if args.pods.allows(pod):
                for key in _keys(pod, args.excluded_kinds):
                    groups.setdefault(key, {}).setdefault(node.name, []).append(pod)
    for by_node in groups.values():
        if all(len(pods) < 2 for pods in by_node.values()):
            continue
        first = next(iter(by_node.values()))[0]
        feasible = sum(_admits(node, first) for node in context.nodes)
        if feasible < FEWEST_NODES:
            continue
        share = -(-sum(map(len, by_node.values())) // feasible)
        for name, pods in by_node.items():
            for pod in pods[1:][max(share - 1, 0) :]:
                if context.evictor.filter(pod):
                    context.evictor.evict(pod, name, f"{len(pods)} duplicates on the node, its share is {share}")
    return Findings()


def _keys(pod: PodOnNode, excluded: frozenset[str]) -> list[Key]:
    metadata = pod.pod.metadata
    if has_owner_of(pod.pod, excluded):
        return []
    images = tuple(sorted(each.image for each in pod.pod.spec.containers))
    return [(metadata.namespace, owner.kind, owner.name, images) for owner in metadata.owner_references]


def _admits(node: MeasuredNode, pod: PodOnNode) -> bool:
    return tolerates_taints(node.node, pod.pod) and selects_node(node.node, pod.pod)
