"""Label selectors over pods, in one canonical form, so that equal ones are counted once.

Source: Kubernetes' LabelSelector: labels and expressions must all hold; an empty selector selects everything, an absent
    one nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from shared.kube.selectors import LabelSelector, Requirement

Selector = tuple[Requirement, ...]
"""Expressions in a canonical order, all of which must hold."""

EVERYTHING: Selector = ()
_NO_LABELS: Mapping[str, str] = {}


class Matcher(NamedTuple):
    """Matches pods by namespace and labels.

    Attributes:
        namespaces: None for all namespaces.
        selector: None matches no pod.
    """

    namespaces: frozenset[str] | None
    selector: Selector | None

    def matches(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Returns True when a pod of the namespace with these labels matches."""
        if self.selector is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return selects(self.selector, labels)


def canonical(selector: LabelSelector | None) -> Selector | None:
    """Returns a selector in canonical form; None for one that selects nothing."""
    if selector is None:
        return None
    return ordered(
        (
            *(
                Requirement(key=key, operator="In", values=(value,))
                for key, value in (selector.match_labels or {}).items()
            ),
            *selector.match_expressions,
        )
    )


def ordered(requirements: Iterable[Requirement]) -> Selector:
    """Returns expressions in canonical order, each once, with sorted distinct values."""
    unique = {
        (r.key, r.operator, tuple(sorted(set(r.values)))): None for r in requirements
    }  # fmt: skip
    return tuple(Requirement(key=key, operator=operator, values=values) for key, operator, values in sorted(unique))


def selects(selector: Selector, labels: Mapping[str, str] | None) -> bool:
    """Returns True when labels meet every expression. No labels meet an unknown operator."""
    labels = labels or _NO_LABELS
    for requirement in selector:
        value = labels.get(requirement.key)
        match requirement.operator:
            case "In":
                holds = value is not None and value in requirement.values
            case "NotIn":
                holds = value is None or value not in requirement.values
            case "Exists":
                holds = value is not None
            case "DoesNotExist":
                holds = value is None
            case _:
                holds = False
        if not holds:
            return False
    return True


def anchors(selector: Selector) -> tuple[tuple[str, str], ...]:
    """Returns labels of which a selected pod has at least one: the values of the narrowest In; empty without an In."""
    narrowest = min((r for r in selector if r.operator == "In"), key=lambda r: len(r.values), default=None)
    return tuple((narrowest.key, value) for value in narrowest.values) if narrowest else ()


def label_pairs(labels: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Returns an iterator over the labels."""
    return iter((labels or _NO_LABELS).items())
