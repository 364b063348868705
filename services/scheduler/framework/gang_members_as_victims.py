"""Victims of preemption that belong to gangs: a gang loses only members beyond its minimum, or all of its group.

A running gang below its minimum does nothing but hold its nodes, so a single member is a victim only while the minimum
of its gang still runs without it. Where that is not enough, all running members of its group of gangs are victims, on
whatever node they are. Upstream's DefaultPreemption takes single members.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, victim_of
from services.scheduler.framework.victim_selection import by_importance


class Lot(NamedTuple):
    """Pods that are evicted together or not at all.

    Attributes:
        pods: those among the potential victims, the most important first.
        others: further members of their group of gangs.
    """

    pods: tuple[Victim, ...]
    others: tuple[Victim, ...] = ()


class GangVictims:
    """The gangs of potential victims in one cycle."""

    def __init__(self, cache: ClusterCache, preemptions: CyclePreemptions) -> None:
        self._pods = cache.view.pods
        self._gangs = cache.view.gangs
        self._preemptions = preemptions

    def options(self, potential: Iterable[str], preemptor: str, priority: int) -> Iterator[list[Lot]]:
        """Yields the ways to form lots of potential victims, the one that ends no gang first.

        Args:
            potential: uids of pods of lower priority.
            preemptor: uid of the pod for which they are evicted; its own group of gangs loses no member.
            priority: of the preemptor.
        """
        ordinary: list[Lot] = []
        members: dict[str, list[Victim]] = {}
        for uid in potential:
            gang = self._gangs.gang_of.get(uid)
            if gang is None or self._gangs.gangs[gang].settings is None:
                ordinary.append(Lot((victim_of(self._pods[uid]),)))
            else:
                members.setdefault(gang, []).append(victim_of(self._pods[uid]))
        beyond = {gang: self._beyond_minimum(gang, there) for gang, there in members.items()}
        yield ordinary + [lot for lots in beyond.values() for lot in lots]
        wholes: dict[str, Lot] = {}
        for gang, there in members.items():
            if len(beyond[gang]) < len(there):
                whole = self._whole(gang, members, preemptor, priority)
                if whole is not None:
                    wholes[self._group_key(gang)] = whole
        if wholes:
            singles = (lots for gang, lots in beyond.items() if self._group_key(gang) not in wholes)
            yield ordinary + [lot for lots in singles for lot in lots] + list(wholes.values())

    def _beyond_minimum(self, gang: str, potential: Collection[Victim]) -> list[Lot]:
        """Returns the least important members that a gang can lose and keep its minimum."""
        settings = self._gangs.gangs[gang].settings
        assert settings is not None, "its members would be like other pods"
        spare = max(len(list(self._running(gang))) - settings.minimum, 0)
        return [Lot((victim,)) for victim in by_importance(potential)[::-1][:spare]]

    def _whole(self, gang: str, potential: dict[str, list[Victim]], preemptor: str, priority: int) -> Lot | None:
        """Returns all running members of the group of a gang; None where one of them is no victim for the preemptor."""
        groups = self._groups(gang)
        if self._gangs.gang_of.get(preemptor) in groups:
            return None
        here = by_importance(victim for other in groups for victim in potential.get(other, ()))
        uids = {victim.uid for victim in here}
        others = [victim_of(self._pods[uid]) for other in groups for uid in self._running(other) if uid not in uids]
        if any(victim.priority >= priority for victim in others):
            return None
        return Lot(tuple(here), tuple(by_importance(others)))

    def _running(self, gang: str) -> Iterator[str]:
        """Yields the uids of the members of a gang that count on a node, and are not about to leave it."""
        record = self._gangs.gangs.get(gang)
        for uid in record.members if record is not None else ():
            pod = self._pods[uid]
            if pod.assignment() is not None and not pod.is_terminating() and not self._preemptions.is_evicted(uid):
                yield uid

    def _groups(self, gang: str) -> tuple[str, ...]:
        settings = self._gangs.gangs[gang].settings
        return (gang,) if settings is None or gang not in settings.groups else settings.groups

    def _group_key(self, gang: str) -> str:
        return ",".join(self._groups(gang))
