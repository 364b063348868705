"""Affinity terms between pods, in the form in which they are counted.

Source: spec/scheduler-core.md 2.5; upstream Kubernetes pkg/scheduler/framework (AffinityTerm) and the API server,
which merges `matchLabelKeys` and `mismatchLabelKeys` into the selector when a pod is created. Merging again changes
nothing, so pods that no API server has created are treated alike.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import EVERYTHING, Matcher, Selector, canonical, ordered, selects
from shared.kube.pod import PodAffinity, PodAffinityTerm
from shared.kube.selectors import Requirement

_NOBODY = PodAffinity()


class Term(NamedTuple):
    """One term of a pod of a known namespace.

    Attributes:
        key: topology key.
        namespaces: by name; the pod's own for a term with neither names nor a selector.
        namespace_selector: by label; None: no others.
        selector: of pods; None: it matches none.
    """

    key: str
    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector | None

    def matches(self, pod_class: PodClass, namespace_labels: Mapping[str, str] | None) -> bool:
        """Returns True where the term matches a pod, given the labels of that pod's namespace."""
        if self.selector is None:
            return False
        if pod_class.namespace not in self.namespaces and (
            self.namespace_selector is None or not selects(self.namespace_selector, namespace_labels)
        ):
            return False
        return selects(self.selector, pod_class.labels)

    def matcher(self, cluster_objects: ClusterObjects) -> Matcher:
        """The term with the names of the namespaces that exist now."""
        if self.namespace_selector == EVERYTHING:
            return Matcher(None, self.selector)
        if self.namespace_selector is None:
            return Matcher(self.namespaces, self.selector)
        return Matcher(self.namespaces | cluster_objects.namespaces_selected(self.namespace_selector), self.selector)


class Terms(NamedTuple):
    """All terms of a class of pods; preferred ones with their weights, 1..100."""

    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    preferred: tuple[tuple[Term, int], ...]
    preferred_anti: tuple[tuple[Term, int], ...]


NO_TERMS = Terms((), (), (), ())


def terms_of(pod_class: PodClass) -> Terms:
    """The terms of a class, read once."""
    terms: Terms | None = pod_class.cached.get(Terms)
    if terms is None:
        terms = pod_class.cached[Terms] = _read(pod_class)
    return terms


def _read(pod_class: PodClass) -> Terms:
    affinity = pod_class.pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    near, far = affinity.pod_affinity or _NOBODY, affinity.pod_anti_affinity or _NOBODY
    return Terms(
        affinity=_terms(near.required, pod_class),
        anti_affinity=_terms(far.required, pod_class),
        preferred=tuple((_term(each.pod_affinity_term, pod_class), each.weight) for each in near.preferred),
        preferred_anti=tuple((_term(each.pod_affinity_term, pod_class), each.weight) for each in far.preferred),
    )


def _terms(terms: Iterable[PodAffinityTerm], pod_class: PodClass) -> tuple[Term, ...]:
    return tuple(_term(term, pod_class) for term in terms)


def _term(term: PodAffinityTerm, pod_class: PodClass) -> Term:
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((pod_class.namespace,))
    selector = canonical(term.label_selector)
    if selector is not None and (term.match_label_keys or term.mismatch_label_keys):
        merged = [
            Requirement(key=key, operator=operator, values=(pod_class.labels[key],))
            for keys, operator in ((term.match_label_keys, "In"), (term.mismatch_label_keys, "NotIn"))
            for key in keys
            if key in pod_class.labels
        ]
        selector = ordered((*selector, *merged))
    return Term(term.topology_key, namespaces, canonical(term.namespace_selector), selector)
