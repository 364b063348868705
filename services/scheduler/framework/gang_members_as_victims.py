"""Victims that belong to gangs: a gang loses only members beyond its minimum, or all of its group.

The rule of every eviction that the scheduler decides: preemption, and what an extender's caller requests. A running
gang below its minimum does nothing but hold its nodes, so a single member is a victim only while the minimum of its
gang still runs without it. Where that is not enough, all running members of its group of gangs are victims, on
whatever node they are. Upstream's DefaultPreemption takes single members.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, victim_of
from services.scheduler.framework.victim_selection import by_importance
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState


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
        self._view = cache.view
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

    def rest_of(self, chosen: Collection[str]) -> list[Victim]:
        """Returns the other running members of the groups of which a gang would run with too few without these pods.

        Args:
            chosen: uids of the pods to evict.
        """
        found: dict[str, None] = {}
        for gang in sorted({self._gangs.gang_of[uid] for uid in chosen if uid in self._gangs.gang_of}):
            settings, running = self._gangs.gangs[gang].settings, list(self._running(gang))
            left = [uid for uid in running if uid not in chosen]
            if settings is not None and len(left) < min(len(running), settings.minimum):
                groups = self._gangs.group_of(gang)
                found |= dict.fromkeys(uid for other in groups for uid in self._to_evict(other) if uid not in chosen)
        return by_importance(victim_of(self._pods[uid]) for uid in found)

    def _beyond_minimum(self, gang: str, potential: Collection[Victim]) -> list[Lot]:
        """Returns the least important members that a gang can lose and keep its minimum."""
        settings = self._gangs.gangs[gang].settings
        assert settings is not None, "its members would be like other pods"
        spare = max(len(list(self._running(gang))) - settings.minimum, 0)
        return [Lot((victim,)) for victim in by_importance(potential)[::-1][:spare]]

    def _whole(self, gang: str, potential: dict[str, list[Victim]], preemptor: str, priority: int) -> Lot | None:
        """Returns all running members of the group of a gang; None where one of them is no victim for the preemptor."""
        groups = self._gangs.group_of(gang)
        if self._gangs.gang_of.get(preemptor) in groups:
            return None
        here = by_importance(victim for other in groups for victim in potential.get(other, ()))
        uids = {victim.uid for victim in here}
        others = [victim_of(self._pods[uid]) for other in groups for uid in self._to_evict(other) if uid not in uids]
        if any(victim.priority >= priority for victim in others):
            return None
        return Lot(tuple(here), tuple(by_importance(others)))

    def _running(self, gang: str) -> Iterator[str]:
        """Yields the uids of the members of a gang that count on a node, and are not about to leave it."""
        return (uid for uid in running_members(self._view, gang) if not self._preemptions.is_evicted(uid))

    def _to_evict(self, gang: str) -> Iterator[str]:
        return (uid for uid in self._running(gang) if not holds_a_place(self._pods[uid]))

    def _group_key(self, gang: str) -> str:
        return ",".join(self._gangs.group_of(gang))


def holds_a_place(member: PodRecord) -> bool:
    """Reports whether a member stands for a Reservation, which holds the place of one that moves: it counts like the
    others, and is no pod that could be evicted.
    """
    return member.pod_class is not None and member.pod_class.reserves


def running_members(view: SchedulerState, gang: str) -> Iterator[str]:
    """Yields the uids of the members of a gang that count on a node, and neither terminate nor are to be evicted."""
    record = view.gangs.gangs.get(gang)
    for uid in record.members if record is not None else ():
        pod = view.pods[uid]
        if pod.assignment() is not None and not pod.is_terminating():
            yield uid
