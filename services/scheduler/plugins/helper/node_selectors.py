"""Node selectors and node affinity terms, matched against the labels and names of all nodes."""

import numpy as np

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.pod import NodeAffinity as Affinity
from shared.kube.selectors import NodeSelectorTerm, Requirement


def own_matches(table: NodeTable, pod_class: PodClass) -> Bools:
    """bool[rows]: nodes that match the pod's own selector and required terms."""
    matches = np.ones(table.size, np.bool_)
    for key, value in (pod_class.pod.spec.node_selector or {}).items():
        matches &= table.labels.matches(Requirement(key=key, operator="In", values=(value,)), table.size)
    return matches & required_matches(table, affinity_of(pod_class))


def affinity_of(pod_class: PodClass) -> Affinity | None:
    """The node affinity of a class of pods."""
    return pod_class.pod.spec.affinity.node_affinity if pod_class.pod.spec.affinity else None


def required_matches(table: NodeTable, affinity: Affinity | None) -> Bools:
    """bool[rows]: nodes that match one of the required terms; all of them without any requirement."""
    if affinity is None or affinity.required is None:
        return np.ones(table.size, np.bool_)
    one_of = np.zeros(table.size, np.bool_)
    for term in affinity.required.node_selector_terms:
        one_of |= term_matches(table, term)
    return one_of


def term_matches(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    """bool[rows]: nodes that match every expression of a term; a term without any matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(table.size, np.bool_)
    matches = np.ones(table.size, np.bool_)
    for requirement in term.match_expressions:
        matches &= table.labels.matches(requirement, table.size)
    for requirement in term.match_fields:
        matches &= _field_matches(table, requirement)
    return matches


def _field_matches(table: NodeTable, requirement: Requirement) -> Bools:
    """bool[rows] for `metadata.name` In or NotIn; other fields match nothing."""
    named = np.zeros(table.size, np.bool_)
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return named
    named[[table.rows[name] for name in requirement.values if name in table.rows]] = True
    return named if requirement.operator == "In" else ~named
