"""Selection of preemption victims: the fewest pods of a node, and the node with the least loss.

Pure functions; the caller removes pods from a copy of the nodes and runs the filters (`cycle/preemption.py`).

Source: spec/scheduler-core.md 2.7; upstream Kubernetes pkg/scheduler/framework/plugins/defaultpreemption and
framework/preemption.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.scheduler.cache.disruption_budgets import Budget, Victim, overdrawn

_LOWEST_PRIORITY = 1 << 31  # added, so that many pods of negative priority weigh more than few


class Candidate(NamedTuple):
    """A node on which the pod would fit without the victims, most important first.

    Attributes:
        violations: number of victims beyond their disruption budgets.
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
    """The fewest pods of one node to evict, and the number of them that violate a budget; None where all are not
    enough.

    All are removed; then each is put back, those whose budget would be violated first, and among these the most
    important first; a pod stays when the new pod still fits. When this returns, all are back.

    Args:
        potential: the pods of lower priority on the node.

    Returns:
        No victims where the pod fits without an eviction.
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
    """(victims whose eviction violates a budget, the others), if all were evicted in this order."""
    beyond = overdrawn(ordered, budgets)
    return [one for one in ordered if one.uid in beyond], [one for one in ordered if one.uid not in beyond]


def pick(candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate with the least loss.

    Compared are: violated budgets, the highest priority of a victim, the sum of priorities, the number of victims,
    the start of the most important victims (the latest is best), and the order of the candidates.
    """
    return min(candidates, key=_loss, default=None)


def _loss(candidate: Candidate) -> tuple[int, int, int, int, int]:
    victims = candidate.victims
    highest = max((victim.priority for victim in victims), default=-_LOWEST_PRIORITY)
    earliest = min((victim.started_ns for victim in victims if victim.priority == highest), default=0)
    total = sum(victim.priority + _LOWEST_PRIORITY for victim in victims)
    return candidate.violations, highest, total, len(victims), -earliest
