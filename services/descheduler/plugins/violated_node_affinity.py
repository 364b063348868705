"""RemovePodsViolatingNodeAffinity: pods leave nodes that their node selector or affinity no longer wants.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.framework.node_affinity_and_taints import matches_term, selects_node
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.plugins.pod_filter_and_request_fit import fits_another_node
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from shared.domain.component_config import BadConfig, converted
from shared.kube.node import Node
from shared.kube.pod import NodeAffinity, Pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class _Document(CommonDocument):
    node_affinity_type: list[str] = field(default_factory=list)


class NodeAffinityArgs(NamedTuple):
    """The arguments; `types` are REQUIRED and PREFERRED, in their order."""

    pods: PolicyPods
    types: tuple[str, ...]


def read_args(plain: Mapping[str, Any], path: str) -> NodeAffinityArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value, or there is no type.
    """
    given = converted(dict(plain), _Document, path)
    if not given.node_affinity_type:
        raise BadConfig(f"{path}.nodeAffinityType", f"empty; give {REQUIRED}, {PREFERRED} or both")
    for number, each in enumerate(given.node_affinity_type):
        if each not in (REQUIRED, PREFERRED):
            raise BadConfig(f"{path}.nodeAffinityType[{number}]", f"{each!r}; give {REQUIRED} or {PREFERRED}")
    return NodeAffinityArgs(policy_pods(given, path), tuple(given.node_affinity_type))


def violated_node_affinity(context: CycleContext) -> Findings:
    """Chooses the pods whose node they would not get, or would get only with less weight than another that they fit."""
    args: NodeAffinityArgs = context.args
    for kind in args.types:
        for node in context.nodes:
            for pod in node.pods:
                violates = _violates_required if kind == REQUIRED else _prefers_another
                if (
                    args.pods.allows(pod)
                    and violates(pod, node, context.nodes)
                    and context.evictor.filter(pod)
                    and fits_another_node(pod, node.name, context.nodes)
                ):
                    context.evictor.evict(pod, node.name, f"node {node.name} violates {kind}")
    return Findings()


def _violates_required(pod: PodOnNode, node: MeasuredNode, _: Sequence[MeasuredNode]) -> bool:
    affinity = _affinity(pod.pod)
    return affinity is not None and affinity.required is not None and not selects_node(node.node, pod.pod)


def _prefers_another(pod: PodOnNode, node: MeasuredNode, nodes: Sequence[MeasuredNode]) -> bool:
    affinity = _affinity(pod.pod)
    if affinity is None or not affinity.preferred:
        return False
    best = max(_weight(affinity, each.node) for each in nodes if selects_node(each.node, pod.pod) or each is node)
    return best > _weight(affinity, node.node)


def _affinity(pod: Pod) -> NodeAffinity | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def _weight(affinity: NodeAffinity, node: Node) -> int:
    return sum(each.weight for each in affinity.preferred if matches_term(node, each.preference))
