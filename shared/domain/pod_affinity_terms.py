"""Affinity terms between pods, in the form in which they are counted.

Source: spec/scheduler-core.md 2.5; upstream Kubernetes pkg/scheduler/framework (AffinityTerm) and the API server,
which merges `matchLabelKeys` and `mismatchLabelKeys` into the selector when a pod is created. Merging again changes
nothing, so pods that no API server has created are treated alike.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shared.domain.label_selectors import EVERYTHING, Matcher, Selector, canonical, ordered, selects
from shared.kube.pod import PodAffinityTerm
from shared.kube.selectors import Requirement


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

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
        """Returns True where the term matches a pod, given the labels of that pod's namespace."""
        if self.selector is None:
            return False
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not selects(self.namespace_selector, namespace_labels)
        ):
            return False
        return selects(self.selector, labels)

    def matcher(self, namespaces_selected: Callable[[Selector], frozenset[str]]) -> Matcher:
        """The term with the names of the namespaces that exist now.

        Args:
            namespaces_selected: returns the names of the namespaces that a selector selects.
        """
        if self.namespace_selector == EVERYTHING:
            return Matcher(None, self.selector)
        if self.namespace_selector is None:
            return Matcher(self.namespaces, self.selector)
        return Matcher(self.namespaces | namespaces_selected(self.namespace_selector), self.selector)


def affinity_term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> Term:
    """Returns a term of a pod with a namespace and labels."""
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((namespace,))
    selector = canonical(term.label_selector)
    if selector is not None and (term.match_label_keys or term.mismatch_label_keys):
        merged = [
            Requirement(key=key, operator=operator, values=(labels[key],))
            for keys, operator in ((term.match_label_keys, "In"), (term.mismatch_label_keys, "NotIn"))
            for key in keys
            if key in labels
        ]
        selector = ordered((*selector, *merged))
    return Term(term.topology_key, namespaces, canonical(term.namespace_selector), selector)
