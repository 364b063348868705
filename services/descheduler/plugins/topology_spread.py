"""RemovePodsViolatingTopologySpreadConstraint: pods leave the domains that have too many pods of a selector.

The domains of a constraint are sorted by size. From both ends, the largest gives the smallest one

    min( ceil(large - average), ceil(average - small), ceil((large - small - maxSkew) / 2) )   pods

while they differ by more than `maxSkew`.

Source: spec/descheduler.md 1.8. Pods are counted as the scheduler counts them: on the nodes that the constraint counts,
and none for an empty selector.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.framework.node_affinity_and_taints import selects_node, tolerates_taints
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.plugins.pod_filter_and_request_fit import fits_another_node
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from shared.domain.component_config import check_one_of, converted
from shared.domain.label_selectors import Matcher
from shared.domain.topology_spread import Constraint, constraint_selector, spread_constraint
from shared.kube.pod import Pod

ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_encoder = msgspec.json.Encoder(order="sorted")


class _Document(CommonDocument):
    constraints: list[str] = field(default_factory=list)
    topology_balance_node_fit: bool = True


class SpreadArgs(NamedTuple):
    """The arguments; `actions` are those of the constraints that count."""

    pods: PolicyPods
    actions: frozenset[str]
    node_fit: bool


class SpreadPod(NamedTuple):
    """A pod with the node that it is on."""

    pod: PodOnNode
    node: str


class Domain(NamedTuple):
    """The pods of a domain that a constraint counts, the first ones to leave at the end."""

    value: str
    pods: list[SpreadPod]


class CountedNodes(NamedTuple):
    """The nodes that a constraint counts: by the value of their domain, in its order; and node -> that value."""

    by_domain: Mapping[str, Sequence[MeasuredNode]]
    of_node: Mapping[str, str]


class NodesOfOthers(Container[str]):
    """The nodes in domains of a constraint that are not full.

    Attributes:
        full: values of the domains with as many pods as the average or more.
    """

    def __init__(self, of_node: Mapping[str, str], full: frozenset[str]) -> None:
        self._of_node = of_node
        self.full = full

    def __contains__(self, node: object) -> bool:
        """Reports whether a node is in such a domain."""
        value = self._of_node.get(str(node))
        return value is not None and value not in self.full


def read_args(plain: Mapping[str, Any], path: str) -> SpreadArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    for number, each in enumerate(given.constraints):
        check_one_of(each, ACTIONS, f"{path}.constraints[{number}]")
    actions = frozenset(given.constraints or ACTIONS[:1])
    return SpreadArgs(policy_pods(given, path), actions, given.topology_balance_node_fit)


def topology_spread(context: CycleContext) -> Findings:
    """Chooses the pods that leave domains with too many, for each constraint of each namespace."""
    args: SpreadArgs = context.args
    by_namespace: dict[str, list[SpreadPod]] = {}
    for node in context.nodes:
        for pod in node.pods:
            if args.pods.allows(pod):
                by_namespace.setdefault(pod.pod.metadata.namespace, []).append(SpreadPod(pod, node.name))
    counted: dict[bytes, CountedNodes] = {}
    for _, pods in sorted(by_namespace.items()):
        for constraint, owner in _constraints(pods, args.actions):
            rules = _encoder.encode((constraint.key, *_node_rules(owner, constraint)))
            if rules not in counted:
                counted[rules] = counted_nodes(constraint, owner, context.nodes)
            if domains := _unbalanced_domains(context, constraint, counted[rules], pods):
                _balance(context, constraint, counted[rules], domains)
    return Findings()


def _balance(context: CycleContext, constraint: Constraint, counted: CountedNodes, domains: Sequence[Domain]) -> None:
    """Chooses the surplus of the domains of a constraint."""
    args: SpreadArgs = context.args
    average = sum(len(each.pods) for each in domains) / len(counted.by_domain)
    allowed = NodesOfOthers(counted.of_node, frozenset(each.value for each in domains if len(each.pods) >= average))
    below = [node for value, nodes in counted.by_domain.items() if value not in allowed.full for node in nodes]
    reason = f"its domain of {constraint.key} has more pods than others, beyond maxSkew {constraint.max_skew}"
    for each in surplus(domains, constraint.max_skew, average, below):
        fits = not args.node_fit or fits_another_node(each.pod, each.node, below)
        if fits and context.evictor.filter(each.pod):
            context.evictor.evict(each.pod, each.node, reason, allowed)


def _constraints(pods: Sequence[SpreadPod], actions: frozenset[str]) -> Iterator[tuple[Constraint, Pod]]:
    """Yields the distinct constraints of pods of a namespace, each with the first pod that has it."""
    read_pods: set[tuple[int, frozenset[tuple[str, str]]]] = set()  # pods of a template share their spec
    found: set[bytes] = set()
    for each in pods:
        pod = each.pod.pod
        labels = pod.metadata.labels or {}
        template = id(pod.spec), frozenset(labels.items())
        if template in read_pods:
            continue
        read_pods.add(template)
        for given in pod.spec.topology_spread_constraints:
            if given.when_unsatisfiable not in actions:
                continue
            read = spread_constraint(given, labels, constraint_selector(given, labels))
            read = read._replace(matches_self=True, min_domains=1)  # neither matters to pods that run
            key = _encoder.encode((tuple(read), *_node_rules(pod, read)))
            if key not in found:
                found.add(key)
                yield read, pod


def _node_rules(pod: Pod, constraint: Constraint) -> tuple[object, object]:
    """Returns what decides which nodes a constraint of a pod counts."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    selection = (pod.spec.node_selector, affinity) if constraint.honors_affinity else None
    return selection, pod.spec.tolerations if constraint.honors_taints else None


def counted_nodes(constraint: Constraint, pod: Pod, nodes: Iterable[MeasuredNode]) -> CountedNodes:
    """Returns the nodes that a constraint of a pod counts, by domain."""
    by_domain: dict[str, list[MeasuredNode]] = {}
    for node in nodes:
        value = (node.node.metadata.labels or {}).get(constraint.key)
        if value is None or (constraint.honors_affinity and not selects_node(node.node, pod)):
            continue
        if not constraint.honors_taints or tolerates_taints(node.node, pod):
            by_domain.setdefault(value, []).append(node)
    ordered = dict(sorted(by_domain.items()))
    return CountedNodes(ordered, {node.name: value for value, there in ordered.items() for node in there})


def _unbalanced_domains(
    context: CycleContext, constraint: Constraint, counted: CountedNodes, pods: Sequence[SpreadPod]
) -> list[Domain]:
    """Returns the domains of the nodes that count, the smallest first; none where they differ by no more than the
    constraint allows. Of those without pods there are no more than there are pods to go to them.
    """
    found: dict[str, list[SpreadPod]] = {}
    matcher = Matcher(None, constraint.selector)
    for each in pods:
        metadata = each.pod.pod.metadata
        value = counted.of_node.get(each.node)
        if value is not None and matcher.matches("", metadata.labels) and not metadata.deletion_timestamp:
            found.setdefault(value, []).append(each)
    sizes = [len(there) for there in found.values()]
    smallest = min(sizes, default=0) if len(found) == len(counted.by_domain) else 0
    if max(sizes, default=0) - smallest <= constraint.max_skew:
        return []
    for there in found.values():
        there.sort(key=lambda each: _leaving_order(context, each.pod))
    empty = islice((value for value in counted.by_domain if value not in found), sum(sizes))
    filled = (Domain(value, found[value]) for value in counted.by_domain if value in found)
    return [*(Domain(value, []) for value in empty), *sorted(filled, key=lambda each: len(each.pods))]


def _leaving_order(context: CycleContext, pod: PodOnNode) -> tuple[bool, bool, bool, int]:
    """Returns the sort key of a pod in its domain: those that may not leave first, then those that choose their nodes,
    then higher priorities.
    """
    spec = pod.pod.spec
    chooses_nodes = spec.node_selector is not None or bool(spec.affinity and spec.affinity.node_affinity)
    priority = spec.priority
    return context.evictor.filter(pod), not chooses_nodes, priority is None, -(priority or 0)


def surplus(domains: Sequence[Domain], max_skew: int, average: float, below: Sequence[MeasuredNode]) -> list[SpreadPod]:
    """Returns the pods that leave, in order.

    Args:
        domains: the smallest first; their lists are changed as if each pod went to the smallest.
        average: pods of a domain, also of those that are left out.
        below: nodes with room for more pods of the constraint: pods that fit one of them leave first.
    """
    leaving: dict[str, SpreadPod] = {}
    small, large, is_filled = 0, len(domains) - 1, False
    while small < large:
        if len(domains[large].pods) <= average:
            large -= 1
        skew = len(domains[large].pods) - len(domains[small].pods)
        moved = min(
            ceil(len(domains[large].pods) - average),
            ceil(average - len(domains[small].pods)),
            ceil((skew - max_skew) / 2),
        )
        if skew <= max_skew or moved <= 0:
            if not is_filled:
                break  # those between are no smaller than the one and no larger than the other
            small, is_filled = small + 1, False
            continue
        pods = domains[large].pods
        pods.sort(key=lambda each: fits_another_node(each.pod, each.node, below))
        taken = pods[-moved:]
        del pods[-moved:]
        domains[small].pods.extend(taken)
        is_filled = True
        leaving.update((each.pod.pod.metadata.uid, each) for each in reversed(taken))
    return list(leaving.values())
