"""Reference implementation of spread and of affinity between pods, node by node and pod by pod, without counts."""

import math
from collections.abc import Callable, Mapping, Sequence

from services.scheduler.plugins.inter_pod_affinity.domain_counts import AFFINITY, ANTI_AFFINITY, EXISTING
from shared.kube.node import Node
from shared.kube.pod import Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from shared.kube.selectors import LabelSelector, Requirement
from tests.unit.scheduler.cluster_worlds import HOST, means

Running = Sequence[tuple[Node, Pod]]
NamespaceLabels = Mapping[str, Mapping[str, str]]


def value(node: Node, key: str) -> str | None:
    return (node.metadata.labels or {}).get(key)


# affinity between pods


def term_means(term: PodAffinityTerm, owner: Pod, other: Pod, spaces: NamespaceLabels) -> bool:
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {owner.metadata.namespace}
    inside = other.metadata.namespace in names or means(term.namespace_selector, spaces.get(other.metadata.namespace))
    return inside and means(term.label_selector, other.metadata.labels)


def sides(pod: Pod) -> tuple[PodAffinity, PodAffinity]:
    affinity = pod.spec.affinity
    nothing = PodAffinity()
    if affinity is None:
        return nothing, nothing
    return affinity.pod_affinity or nothing, affinity.pod_anti_affinity or nothing


def affinity_result(pod: Pod, node: Node, running: Running, spaces: NamespaceLabels) -> int:
    near, far = sides(pod)

    def all_mean(other: Pod) -> bool:
        return all(term_means(term, pod, other, spaces) for term in near.required)

    def there(key: str, is_one: Callable[[Pod], bool]) -> bool:
        return any(value(at, key) == value(node, key) is not None and is_one(other) for at, other in running)

    if near.required:
        if any(value(node, term.topology_key) is None for term in near.required):
            return AFFINITY
        if not all(there(term.topology_key, all_mean) for term in near.required):
            anywhere = any(
                value(at, term.topology_key) is not None and all_mean(other)
                for at, other in running
                for term in near.required
            )
            if anywhere or not all_mean(pod):
                return AFFINITY
    for term in far.required:
        if there(term.topology_key, lambda other, term=term: term_means(term, pod, other, spaces)):  # type: ignore[misc]
            return ANTI_AFFINITY
    for at, other in running:
        for term in sides(other)[1].required:
            shares = value(at, term.topology_key) == value(node, term.topology_key) is not None
            if shares and term_means(term, other, pod, spaces):
                return EXISTING
    return 0


def affinity_scores(pod: Pod, nodes: Sequence[Node], running: Running, spaces: NamespaceLabels) -> list[int]:
    """With hardPodAffinityWeight 1."""
    near, far = sides(pod)
    raw = []
    for node in nodes:
        total = 0
        for at, other in running:
            theirs_near, theirs_far = sides(other)
            weighted = [
                *((t.pod_affinity_term, t.weight, pod, other) for t in near.preferred),
                *((t.pod_affinity_term, -t.weight, pod, other) for t in far.preferred),
                *((t, 1, other, pod) for t in theirs_near.required),
                *((t.pod_affinity_term, t.weight, other, pod) for t in theirs_near.preferred),
                *((t.pod_affinity_term, -t.weight, other, pod) for t in theirs_far.preferred),
            ]
            for term, weight, owner, meant in weighted:
                shares = value(at, term.topology_key) == value(node, term.topology_key) is not None
                if shares and term_means(term, owner, meant, spaces):
                    total += weight
        raw.append(total)
    lowest, highest = min(raw), max(raw)
    if lowest == highest:
        return [0] * len(raw)
    return [int(100.0 * ((score - lowest) / (highest - lowest))) for score in raw]


# spread


def included(pod: Pod, node: Node, constraint: TopologySpreadConstraint) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if constraint.node_affinity_policy != "Ignore" and affinity and affinity.required:
        (term,) = affinity.required.node_selector_terms
        (expression,) = term.match_expressions
        if value(node, expression.key) not in expression.values:
            return False
    return constraint.node_taints_policy != "Honor" or not node.spec.taints


def merged(pod: Pod, constraint: TopologySpreadConstraint) -> LabelSelector | None:
    labels = pod.metadata.labels or {}
    keys = [Requirement(key=k, operator="In", values=(labels[k],)) for k in constraint.match_label_keys if k in labels]
    own = constraint.label_selector
    if not keys:
        return own
    before = own or LabelSelector()
    return LabelSelector(match_labels=before.match_labels, match_expressions=(*before.match_expressions, *keys))


def counts(pod: Pod, other: Pod, selector: LabelSelector | None) -> bool:
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    same = other.metadata.namespace == pod.metadata.namespace and other.metadata.deletion_timestamp is None
    return same and means(selector, other.metadata.labels)


def of_action(pod: Pod, action: str) -> list[TopologySpreadConstraint]:
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == action]


def spread_result(pod: Pod, node: Node, nodes: Sequence[Node], running: Running) -> int:
    hard = of_action(pod, "DoNotSchedule")
    with_keys = [each for each in nodes if all(value(each, c.topology_key) is not None for c in hard)]
    for constraint in hard:
        key, selector = constraint.topology_key, merged(pod, constraint)
        if value(node, key) is None:
            return 1
        domains = {value(each, key): 0 for each in with_keys if included(pod, each, constraint)}
        for at, other in running:
            if at in with_keys and included(pod, at, constraint) and counts(pod, other, selector):
                domains[value(at, key)] += 1
        least = min(domains.values(), default=0) if len(domains) >= (constraint.min_domains or 1) else 0
        own = 1 if selector is None or means(selector, pod.metadata.labels) else 0
        if domains.get(value(node, key), 0) + own - least > constraint.max_skew:
            return 2
    return 0


def spread_scores(pod: Pod, nodes: Sequence[Node], feasible: Sequence[Node], running: Running) -> list[int]:
    soft = of_action(pod, "ScheduleAnyway")

    def has_keys(node: Node) -> bool:
        return all(value(node, c.topology_key) is not None for c in soft)

    ranked = [node for node in feasible if has_keys(node)]
    raw = {}
    for node in ranked:
        total = 0.0
        for constraint in soft:
            key, selector = constraint.topology_key, merged(pod, constraint)
            if key == HOST:
                size = len(ranked)
                pods = sum(counts(pod, other, selector) for at, other in running if at == node)
            else:
                size = len({value(each, key) for each in ranked})
                pods = sum(
                    counts(pod, other, selector)
                    for at, other in running
                    if value(at, key) == value(node, key) and has_keys(at) and included(pod, at, constraint)
                )
            total += pods * math.log(size + 2) + (constraint.max_skew - 1)
        raw[node.metadata.name] = math.floor(total + 0.5)
    highest, lowest = max(raw.values(), default=0), min(raw.values(), default=0)
    scores = []
    for node in feasible:
        if node not in ranked:
            scores.append(0)
        elif highest == 0:
            scores.append(100)
        else:
            scores.append(100 * (highest + lowest - raw[node.metadata.name]) // highest)
    return scores
