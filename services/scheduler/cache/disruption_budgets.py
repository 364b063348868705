"""PodDisruptionBudgets, and the disruptions that evictions leave of them.

Source: spec/scheduler-core.md 2.7; upstream Kubernetes pkg/scheduler/framework/preemption.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shared.domain.label_selectors import Selector, selects


class Victim(NamedTuple):
    """A pod that may be evicted.

    Attributes:
        started_ns: start time; a pod that has not started counts as the latest.
    """

    uid: str
    name: str  # namespace/name
    labels: Mapping[str, str]
    priority: int
    started_ns: int


class Budget(NamedTuple):
    """A PodDisruptionBudget.

    Attributes:
        selector: an empty one selects nothing.
        allowed: disruptions that are left.
        disrupted: names of pods that are being disrupted already.
        name: `namespace/name`.
    """

    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()
    name: str = ""


def drawn_down(budgets: Sequence[Budget], victims: Iterable[Victim]) -> tuple[Budget, ...]:
    """The budgets once these pods are evicted: each that selects one has one disruption fewer left, below 0 where it is
    violated.

    A pod counts once: its budgets record it as disrupted. Where no budget changes, the same tuple is returned.
    """
    after: list[Budget] | None = None
    of_namespace: dict[str, list[int]] = {}
    for number, budget in enumerate(budgets):
        of_namespace.setdefault(budget.namespace, []).append(number)
    for victim in victims:
        namespace, _, name = victim.name.rpartition("/")
        for number in of_namespace.get(namespace, ()):
            budget = (after or budgets)[number]
            if _disrupts(victim, name, budget):
                after = after or list(budgets)
                after[number] = budget._replace(allowed=budget.allowed - 1, disrupted=budget.disrupted | {name})
    return tuple(after or budgets)


def overdrawn(ordered: Iterable[Victim], budgets: Sequence[Budget]) -> dict[str, tuple[str, ...]]:
    """Returns uid -> names of the budgets that its eviction violates, if all are evicted in this order; others are left
    out.
    """
    left = [budget.allowed for budget in budgets]
    found: dict[str, tuple[str, ...]] = {}
    for victim in ordered:
        namespace, _, name = victim.name.rpartition("/")
        beyond: list[str] = []
        for number, budget in enumerate(budgets):
            if budget.namespace == namespace and _disrupts(victim, name, budget):
                left[number] -= 1
                if left[number] < 0:
                    beyond.append(budget.name)
        if beyond:
            found[victim.uid] = tuple(beyond)
    return found


def _disrupts(victim: Victim, name: str, budget: Budget) -> bool:
    """True where evicting a pod of the budget's namespace uses up a disruption that its status does not count yet."""
    return bool(budget.selector) and selects(budget.selector, victim.labels) and name not in budget.disrupted
