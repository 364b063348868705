"""Selection of nodes by the label selectors of strategies.

Source: spec/slo-controller.md 2.3, 7.1; k8s.io/apimachinery, LabelSelectorAsSelector.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from shared.kube.selectors import LabelSelector, Requirement

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}").fullmatch
_VALUE = re.compile(rf"(?:{_NAME})?").fullmatch


class Selecting(Protocol):
    """An entry of a list of node strategies."""

    @property
    def node_selector(self) -> LabelSelector | None:
        """The selector of its nodes."""


S = TypeVar("S", bound=Selecting)


def first_match(entries: Iterable[S], labels: Mapping[str, str]) -> S | None:
    """Returns the first entry whose selector selects these labels.

    An absent selector selects nothing, an empty one everything; one that cannot be read is skipped.
    """
    return next((entry for entry in entries if selects(entry.node_selector, labels)), None)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Reports whether a selector selects labels; an absent one, or one that cannot be read, selects nothing."""
    return selector is not None and not problem_of(selector) and meets(selector, labels)


def meets(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Reports whether labels satisfy a valid selector."""
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions
    )


def problem_of(selector: LabelSelector) -> str:
    """Returns the reason why a selector is invalid; empty when it is valid."""
    for key, value in (selector.match_labels or {}).items():
        if not _KEY(key):
            return f"{key!r} is no label key"
        if not _VALUE(value):
            return f"{value!r} is no label value"
    for requirement in selector.match_expressions:
        if not _KEY(requirement.key):
            return f"{requirement.key!r} is no label key"
        if requirement.operator in ("In", "NotIn"):
            if not requirement.values:
                return f"{requirement.operator} of {requirement.key!r} needs values"
        elif requirement.operator not in ("Exists", "DoesNotExist"):
            return f"{requirement.operator!r} is no operator; there are In, NotIn, Exists and DoesNotExist"
        elif requirement.values:
            return f"{requirement.operator} of {requirement.key!r} takes no values"
        if bad := next((value for value in requirement.values if not _VALUE(value)), None):
            return f"{bad!r} is no label value"
    return ""


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
    return value is None
