"""A label selector as the API writes it, checked as the API checks it, and matched against one object's labels.

Source: k8s.io/apimachinery LabelSelectorAsSelector and labels.NewRequirement.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.errors import KoordError
from shared.kube.selectors import Requirement

Labels = Mapping[str, str]

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class BadSelector(KoordError):
    """A selector that the API would refuse to evaluate."""


class Selector(NamedTuple):
    """Expressions, all of which must hold; none select everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels | None) -> bool:
        """Whether labels meet every expression."""
        return all(_holds(requirement, labels or {}) for requirement in self.requirements)


def selector_of(raw: Mapping[str, Any]) -> Selector:
    """Read a selector object.

    Raises:
        BadSelector: an operator, a key or a value that the API does not take.
    """
    labels, expressions = raw.get("matchLabels") or {}, raw.get("matchExpressions") or ()
    found = [Requirement(key=key, operator="In", values=(value,)) for key, value in labels.items()]
    for expression in expressions:
        values = tuple(expression.get("values") or ())
        found.append(Requirement(key=expression.get("key", ""), operator=expression.get("operator", ""), values=values))
    for requirement in found:
        _check(requirement)
    return Selector(tuple(found))


def _check(requirement: Requirement) -> None:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix))):
        raise BadSelector(f"{key!r} is no label key; give a name of at most 63 letters, digits, '-', '_' and '.'")
    if operator not in _OPERATORS:
        raise BadSelector(f"operator {operator!r} of {key!r} is unknown; give one of {', '.join(_OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        raise BadSelector(f"operator {operator} of {key!r} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        raise BadSelector(f"operator {operator} of {key!r} takes no values")
    for value in values:
        if value and not _NAME.fullmatch(value):
            raise BadSelector(f"{value!r} of {key!r} is no label value")


def _holds(requirement: Requirement, labels: Labels) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
