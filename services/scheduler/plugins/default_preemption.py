"""DefaultPreemption: which pods give way to one of higher priority that fits nowhere, and on which node.

Pure choices; what fits without whom is asked of the caller (`preempting.py`).

Source: spec/scheduler-core.md 2.7; upstream Kubernetes pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from services.scheduler.cache.selectors import Selector, selects
from shared.errors import KoordError

NAME = "DefaultPreemption"
_LOWEST_PRIORITY = 1 << 31  # added, so that many pods of negative priority weigh more than few


class BadPreemptionArgs(KoordError):
    """DefaultPreemptionArgs that cannot be used; names the path, what was found there and what is allowed."""


class PreemptionArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many nodes are looked at: a share of them, but never fewer than a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def candidates(self, nodes: int) -> int:
        """How many candidates are enough, of so many nodes."""
        share = nodes * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), nodes)


def read_preemption_args(raw: Mapping[str, Any], source: str = "DefaultPreemptionArgs") -> PreemptionArgs:
    """Decode and check DefaultPreemptionArgs.

    Raises:
        BadPreemptionArgs: a field is unknown, of the wrong type, or out of range.
    """
    stated = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        args = msgspec.convert(stated, PreemptionArgs)
    except msgspec.ValidationError as error:
        raise BadPreemptionArgs(f"{source}: {error}") from error
    percent, least = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    if not 0 <= percent <= 100:
        raise BadPreemptionArgs(f"{source}: minCandidateNodesPercentage is {percent}; give a percentage from 0 to 100")
    if least < 0:
        raise BadPreemptionArgs(f"{source}: minCandidateNodesAbsolute is {least}; give 0 or more")
    if not percent and not least:
        raise BadPreemptionArgs(f"{source}: both candidate numbers are 0; give one of them above 0")
    return args


class Victim(NamedTuple):
    """A pod that may have to give way.

    Attributes:
        started_ns: when it started; one that has not counts as the latest.
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


class Candidate(NamedTuple):
    """A node on which the pod would fit without the victims, most important first.

    Attributes:
        violations: how many of them go beyond their disruption budgets.
        budgets: the names of these budgets, in order.
    """

    node: str
    victims: tuple[Victim, ...]
    violations: int
    budgets: tuple[str, ...] = ()


def by_importance(victims: Iterable[Victim]) -> list[Victim]:
    """The most important first: the highest priority, then the one that started first."""
    return sorted(victims, key=lambda victim: (-victim.priority, victim.started_ns, victim.uid))


def choose_victims(
    potential: Sequence[Victim],
    budgets: Sequence[Budget],
    *,
    remove: Callable[[Victim], None],
    put_back: Callable[[Victim], None],
    fits: Callable[[], bool],
) -> tuple[list[Victim], int] | None:
    """The fewest pods of one node that have to give way, and how many of them violate a budget; None when all are not enough.

    Each pod is put back again, the important first, those whose budget would be violated before the others; it stays when the new pod
    still fits. When this returns, all are back.

    Args:
        potential: the pods of lower priority on the node.

    Returns:
        No victims where the pod fits beside all of them.
    """
    ordered = by_importance(potential)
    for victim in ordered:
        remove(victim)
    gone = {victim.uid: victim for victim in ordered}
    try:
        if not fits():
            return None
        violating, others = split_by_budgets(ordered, budgets)
        violations = 0
        for number, victim in enumerate((*violating, *others)):
            put_back(victim)
            if fits():
                del gone[victim.uid]
                continue
            remove(victim)
            violations += number < len(violating)
        return list(gone.values()), violations
    finally:
        for victim in gone.values():
            put_back(victim)


def split_by_budgets(ordered: Sequence[Victim], budgets: Sequence[Budget]) -> tuple[list[Victim], list[Victim]]:
    """(those whose going violates a budget, the others), if all went in this order."""
    beyond = overdrawn(ordered, budgets)
    return [one for one in ordered if one.uid in beyond], [one for one in ordered if one.uid not in beyond]


def drawn_down(budgets: Sequence[Budget], victims: Iterable[Victim]) -> tuple[Budget, ...]:
    """The budgets once these pods are evicted: each that selects one has one disruption fewer left, below 0 where it is violated.

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
    """Uid -> names of the budgets that its going violates, of those that violate one, if all went in this order."""
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


def pick(candidates: Sequence[Candidate]) -> Candidate | None:
    """The node that loses least: budgets, then the highest priority that goes, then the sum of priorities, then the number of pods; then
    the one whose most important victims started last; then the first.
    """
    return min(candidates, key=_loss, default=None)


def _loss(candidate: Candidate) -> tuple[int, int, int, int, int]:
    victims = candidate.victims
    highest = max((victim.priority for victim in victims), default=-_LOWEST_PRIORITY)
    earliest = min((victim.started_ns for victim in victims if victim.priority == highest), default=0)
    total = sum(victim.priority + _LOWEST_PRIORITY for victim in victims)
    return candidate.violations, highest, total, len(victims), -earliest
