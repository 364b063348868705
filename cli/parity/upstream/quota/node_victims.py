"""The victims on each node, and the node itself, as upstream chooses them for preemption inside a quota.

Source: spec/quota.md 6.3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.domain.amounts import Amounts, add, exceeding, mask


class Candidate(NamedTuple):
    """A pod of the same quota that may be preempted.

    Attributes:
        counted: its part of the quota's use.
        violates: its eviction would break a disruption budget.
    """

    pod: str
    counted: Mapping[str, int]
    priority: int
    started_ns: int
    violates: bool


class Choice(NamedTuple):
    """The victims on one node, those that break a budget first, and how many of these the node itself needs gone."""

    victims: tuple[Candidate, ...]
    violations: int


def reprieved(
    candidates: Sequence[Candidate],
    request: Mapping[str, int],
    used: Mapping[str, int],
    limit: Mapping[str, int],
    fits: Callable[[Sequence[str]], bool],
) -> Choice | None:
    """Gives the candidates back as far as node and quota have room, the most important first.

    Args:
        request: of the pod that preempts, as its quota counts it.
        used, limit: of the quota, in the units of `request`.
        fits: tests the node without the pods of these names.

    Returns:
        None where the node and the quota both refuse one pod: upstream takes it away twice, fails, and skips the node.
    """
    rest: Amounts = dict(used)
    for candidate in candidates:
        rest = _without(rest, candidate)
    away = [candidate.pod for candidate in candidates]
    gone: list[Candidate] = []
    violations = 0
    for candidate in sorted(candidates, key=lambda each: (not each.violates, -each.priority, each.started_ns)):
        is_fitting = fits([key for key in away if key != candidate.pod])
        after = add(rest, candidate.counted) if is_fitting else _without(add(rest, candidate.counted), candidate)
        has_room = not exceeding(mask(add(after, request), request), limit)
        if not is_fitting and not has_room:
            return None
        if is_fitting and has_room:
            away.remove(candidate.pod)
        else:
            gone.append(candidate)
            violations += candidate.violates and not is_fitting
        rest = after if has_room else rest
    return Choice(tuple(gone), violations)


def _without(rest: Amounts, candidate: Candidate) -> Amounts:
    return {name: max(size - candidate.counted.get(name, 0), 0) for name, size in rest.items()}


def best_node(chosen: Mapping[str, Choice]) -> str:
    """Returns the node with the cheapest victims, empty for none.

    Fewest broken budgets, lowest first victim, lowest sum of priorities, fewest victims, latest start, name.
    """
    candidates = [node for node, choice in chosen.items() if choice.victims]
    return min(candidates, key=lambda node: (*_cost(chosen[node]), node), default="")


def _cost(choice: Choice) -> tuple[int, ...]:
    victims = choice.victims
    top = max(victim.priority for victim in victims)
    earliest = min(victim.started_ns for victim in victims if victim.priority == top)
    total = sum(victim.priority + 2**31 for victim in victims)
    return choice.violations, victims[0].priority, total, len(victims), -earliest
