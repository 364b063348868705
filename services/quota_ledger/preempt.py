"""Preemption inside one quota: which pods of the same quota on one node would make room for a pod, there and in the quota.

Source: spec/quota.md 6.3; upstream pkg/scheduler/plugins/elasticquota/preempt.go.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.domain.amounts import Amounts, add, exceeding, mask


class Candidate(NamedTuple):
    """A pod of the same quota that may give way.

    Attributes:
        counted: what it uses of the quota.
        started_ns: the present for one that has not started.
        violates: whether its going would break a disruption budget.
    """

    pod: str
    counted: Mapping[str, int]
    priority: int
    started_ns: int
    violates: bool


class Given(NamedTuple):
    """What one node would have to give up.

    Attributes:
        victims: in the order found: those that break a budget first.
        violations: how many of them break one because the node needs them gone.
    """

    victims: tuple[Candidate, ...]
    violations: int


class RemovedTwice(Exception):
    """The node and the quota both refuse one pod: upstream takes it away twice, fails, and skips the node."""


def reprieve(
    candidates: Sequence[Candidate],
    request: Mapping[str, int],
    used: Mapping[str, int],
    limit: Mapping[str, int],
    fits: Callable[[Sequence[str]], bool],
) -> Given:
    """Give the candidates back as far as node and quota have room, the most important first.

    Args:
        candidates: all that the node could give up.
        request: of the pod that wants in, as its quota counts it.
        used, limit: of the quota.
        fits: whether the pod fits the node while these candidates stay.

    Raises:
        RemovedTwice: as it says.
    """
    rest: Amounts = dict(used)
    for candidate in candidates:
        rest = _taken(rest, candidate)
    stay: list[str] = []
    gone: list[Candidate] = []
    violations = 0
    ordered = sorted(candidates, key=lambda each: (not each.violates, -each.priority, each.started_ns))
    for candidate in ordered:
        fitting = fits([*stay, candidate.pod])
        after = add(rest, candidate.counted)
        if not fitting:
            violations += candidate.violates
            gone.append(candidate)
            after = _taken(after, candidate)
        if exceeding(mask(add(after, request), request), limit):
            if not fitting:
                raise RemovedTwice
            gone.append(candidate)
            continue
        rest = after
        if fitting:
            stay.append(candidate.pod)
    return Given(tuple(gone), violations)


def best_node(found: Mapping[str, Given]) -> str:
    """The node to make room on: fewest broken budgets, lowest first victim, lowest sum of priorities, fewest victims, latest start."""
    candidates = [node for node, given in found.items() if given.victims]  # nothing to gain where nobody would go
    return min(candidates, key=lambda node: (*_cost(found[node]), node), default="")


def _taken(rest: Amounts, candidate: Candidate) -> Amounts:
    return {name: max(size - candidate.counted.get(name, 0), 0) for name, size in rest.items()}


def _cost(given: Given) -> tuple[int, ...]:
    top = max(victim.priority for victim in given.victims)
    earliest = min(victim.started_ns for victim in given.victims if victim.priority == top)
    total = sum(victim.priority + 2**31 for victim in given.victims)
    return (given.violations, given.victims[0].priority, total, len(given.victims), -earliest)
