"""Which pods of a quota give way to one of higher priority that their quota has no room for.

Pure: the least important go, no more of them than needed. On one node it is what upstream's preemption inside a quota chooses; but the quota's
pods count wherever they run, for room in a quota is not on any node, and nobody goes when all of them together are not enough.

Source: spec/quota.md 6.3; upstream pkg/scheduler/plugins/elasticquota/preempt.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.disruption_budgets import Budget, Victim, overdrawn
from services.scheduler.framework.victim_selection import by_importance
from shared.domain.amounts import Amounts


class QuotaVictim(NamedTuple):
    """A pod that may have to give way.

    Attributes:
        frees: what its quota gets back.
        breaks: names of the disruption budgets that its going would violate.
        stays: it would violate one, or its going was refused before: it goes only where the others are not enough.
    """

    victim: Victim
    frees: Mapping[str, int]
    breaks: tuple[str, ...]
    stays: bool


def eviction_order(
    candidates: Sequence[tuple[Victim, Mapping[str, int]]], budgets: Sequence[Budget], stayed: Iterable[str]
) -> list[QuotaVictim]:
    """Pods in the order in which they go: the least important first, behind all others those that are to stay.

    Args:
        stayed: uids of pods whose going was refused before.
    """
    frees = {victim.uid: size for victim, size in candidates}
    refused = set(stayed)
    least_first = by_importance(victim for victim, _ in candidates)[::-1]
    beyond = overdrawn(least_first, budgets)
    found = []
    for victim in least_first:
        breaks = beyond.get(victim.uid, ())
        found.append(QuotaVictim(victim, frees[victim.uid], breaks, bool(breaks) or victim.uid in refused))
    return sorted(found, key=lambda each: each.stays)


def select_victims(turns: Sequence[QuotaVictim], priority: int, needed: Mapping[str, int]) -> list[QuotaVictim] | None:
    """The pods that go for one of this priority, in the order of `turns`; None when all that may go are not enough.

    Args:
        needed: what has to come free; nobody goes for nothing.
    """
    missing: Amounts = {name: size for name, size in needed.items() if size > 0}
    taken: list[QuotaVictim] = []
    for each in turns:
        if all(size <= 0 for size in missing.values()):
            break
        if each.victim.priority < priority:
            taken.append(each)
            missing = {name: size - each.frees.get(name, 0) for name, size in missing.items()}
    if any(size > 0 for size in missing.values()):
        return None
    gone: list[QuotaVictim] = []
    for each in reversed(taken):  # those that came last are the most important: they stay where the others suffice
        without = {name: size + each.frees.get(name, 0) for name, size in missing.items()}
        if any(size > 0 for size in without.values()):
            gone.append(each)
        else:
            missing = without
    return gone[::-1]
