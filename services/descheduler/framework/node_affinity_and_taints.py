"""Checks that a pod may run on a node, by the node's labels and taints.

This is the check that descheduler plugins make to find candidates; the place that a victim really goes to is found by
the scheduler, by all of its plugins.

Source: spec/descheduler.md 2.8; Kubernetes' node affinity.
"""

import re
from collections.abc import Iterable

from shared.domain.tolerations import HARD, tolerates
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.selectors import NodeSelectorTerm, Requirement

_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch


def admits(node: Node, pod: Pod) -> bool:
    """Reports whether a node is schedulable, matches the pod's selector and required affinity, and has no hard taint
    that the pod does not tolerate.
    """
    return not node.spec.unschedulable and selects_node(node, pod) and tolerates_taints(node, pod)


def tolerates_taints(node: Node, pod: Pod, effects: Iterable[str] = HARD) -> bool:
    """Reports whether a pod tolerates the taints of a node that have one of the effects."""
    tolerations = pod.spec.tolerations
    return all(
        any(tolerates(each, taint) for each in tolerations) for taint in node.spec.taints if taint.effect in effects
    )


def selects_node(node: Node, pod: Pod) -> bool:
    """Reports whether a node matches a pod's `nodeSelector` and one of its required terms."""
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(matches_term(node, term) for term in affinity.required.node_selector_terms)


def matches_term(node: Node, term: NodeSelectorTerm) -> bool:
    """Reports whether a node matches a term; one without expressions matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels, fields = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
    return all(_meets(each, labels) for each in term.match_expressions) and all(
        _meets(each, fields) for each in term.match_fields
    )


def _meets(requirement: Requirement, labels: dict[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(values) != 1 or not (_INTEGER(value) and _INTEGER(values[0])):
                return False
            return int(value) > int(values[0]) if requirement.operator == "Gt" else int(value) < int(values[0])
    return False
