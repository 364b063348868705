"""Selects the pods of a quota that are evicted for a pod of higher priority that does not fit into the quota.

Pure: the least important pods are evicted, and no more of them than needed. For pods of one node the result is that of
upstream's preemption inside a quota. But pods of the quota count wherever they run, since a quota is not bound to a
node, and none is evicted where all of them together do not free enough.

Source: spec/quota.md 6.3; upstream pkg/scheduler/plugins/elasticquota/preempt.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.disruption_budgets import Budget, Victim, overdrawn
from services.scheduler.framework.victim_selection import by_importance
from shared.domain.amounts import Amounts


class QuotaVictim(NamedTuple):
    """A pod that may be evicted.

    Attributes:
        frees: the amounts that its quota gets back.
        violates: names of the disruption budgets that its eviction would violate.
        others: pods that are evicted with it.
        is_last_resort: its eviction would violate one, or was refused before: it is evicted only where the others are
            not enough.
    """

    victim: Victim
    frees: Mapping[str, int]
    violates: tuple[str, ...]
    is_last_resort: bool
    others: tuple[Victim, ...] = ()


def eviction_order(
    candidates: Sequence[tuple[Victim, Mapping[str, int]]], budgets: Sequence[Budget], refused: Iterable[str]
) -> list[QuotaVictim]:
    """Orders pods for eviction: the least important first, those of last resort behind all others.

    Args:
        candidates: pods, each with the amounts that its quota would get back.
        refused: uids of pods whose eviction was refused before.
    """
    frees = {victim.uid: size for victim, size in candidates}
    refused_uids = set(refused)
    least_first = by_importance(victim for victim, _ in candidates)[::-1]
    beyond = overdrawn(least_first, budgets)
    found = []
    for victim in least_first:
        violates = beyond.get(victim.uid, ())
        is_last_resort = bool(violates) or victim.uid in refused_uids
        found.append(QuotaVictim(victim, frees[victim.uid], violates, is_last_resort))
    return sorted(found, key=lambda each: each.is_last_resort)


def joined(parts: Sequence[QuotaVictim], others: Sequence[Victim]) -> QuotaVictim:
    """Returns victims that are evicted together as one.

    Args:
        parts: the most important first.
        others: further pods that are evicted with them, and free nothing in the quota.
    """
    frees: Amounts = {}
    for part in parts:
        for name, size in part.frees.items():
            frees[name] = frees.get(name, 0) + size
    violates = tuple(sorted({name for part in parts for name in part.violates}))
    rest = (*(part.victim for part in parts[1:]), *others)
    return QuotaVictim(parts[0].victim, frees, violates, any(part.is_last_resort for part in parts), rest)


def select_victims(
    ordered: Sequence[QuotaVictim], priority: int, needed: Mapping[str, int]
) -> list[QuotaVictim] | None:
    """Selects victims for a pod of this priority, in the order of `ordered`; None where all candidates together are not
    enough.

    Args:
        needed: the amounts to free; nothing is evicted where none is above zero.
    """
    missing: Amounts = {name: size for name, size in needed.items() if size > 0}
    taken: list[QuotaVictim] = []
    for each in ordered:
        if all(size <= 0 for size in missing.values()):
            break
        if each.victim.priority < priority:
            taken.append(each)
            missing = {name: size - each.frees.get(name, 0) for name, size in missing.items()}
    if any(size > 0 for size in missing.values()):
        return None
    selected: list[QuotaVictim] = []
    # The last ones taken are the most important: they stay where the others are enough.
    for each in reversed(taken):
        without = {name: size + each.frees.get(name, 0) for name, size in missing.items()}
        if any(size > 0 for size in without.values()):
            selected.append(each)
        else:
            missing = without
    return selected[::-1]
