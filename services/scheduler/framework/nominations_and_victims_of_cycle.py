"""Nominations: a refused pod, a node for it, and the pods that are evicted to make capacity there or in its quota.

The State contains a nomination only once the cycle is recorded. Within the cycle, its victims already count as
terminating, their disruptions as used up, and the nominations that it ended as over: for preemption on nodes as for
that inside quotas.

Source: spec/scheduler-core.md 2.7.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.cache.disruption_budgets import Budget, Victim, drawn_down
from services.scheduler.framework.victim_selection import Candidate
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord

_NEVER_STARTED = 1 << 62


class Nomination(NamedTuple):
    """A node for a refused pod.

    Attributes:
        candidate: the node and the victims.
        candidates: number of nodes on which evictions would have helped; 0 where they were not counted.
        quota: the quota whose capacity the victims release; empty for a preemption on a node.
        evicted: the victims whose eviction is not requested yet.
        ended: the pods of lower priority whose nomination for the node ends.
    """

    pod: PodRecord
    pod_class: PodClass
    candidate: Candidate
    candidates: int = 0
    quota: str = ""
    evicted: tuple[Victim, ...] = ()
    ended: tuple[PodRecord, ...] = ()


class CyclePreemptions:
    """Nominations and victims of this cycle, and those of earlier cycles and of extender calls that still run.

    Attributes:
        evicted: uids of the pods whose eviction this cycle requests, in the order of its events.
        nominated: uid -> node of the pods that this cycle nominates.
        ended: uids of the pods whose nomination this cycle ends; lost: those for which no eviction helps any more.
        searches: number of searches for victims on nodes.
    """

    def __init__(self, cache: ClusterCache, nominated: Mapping[str, PodRecord]) -> None:
        """Begins a cycle on a settled cache.

        Args:
            nominated: uid -> a waiting pod that an earlier cycle has nominated.
        """
        self._cache = cache
        self._nominated_before = nominated
        self.evicted: dict[str, None] = {}
        self.nominated: dict[str, str] = {}
        self.ended: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.searches = 0

    def nominate(self, found: Nomination) -> Nomination:
        """Counts a new nomination, and returns it with the evictions to request and the nominations that it ends."""
        pods, node, priority = self._cache.view.pods, found.candidate.node, found.pod_class.priority
        nomination = found._replace(
            evicted=tuple(victim for victim in found.candidate.victims if not pods[victim.uid].is_terminating()),
            ended=tuple(
                other
                for other in self._nominated_before.values()
                if other.uid not in self.ended
                and other.nominated == node
                and other.pod_class is not None
                and other.pod_class.priority < priority
            ),
        )
        self.count(nomination)
        return nomination

    def lose(self, pod: PodRecord) -> None:
        """Ends the nomination of a pod for which no eviction helps any more."""
        self.ended[pod.uid] = self.lost[pod.uid] = None

    def count(self, nomination: Nomination) -> None:
        """Counts a nomination of this cycle."""
        self.nominated[nomination.pod.uid] = nomination.candidate.node
        self.evicted |= dict.fromkeys(victim.uid for victim in nomination.evicted)
        self.ended |= dict.fromkeys(other.uid for other in nomination.ended)
        if nomination.evicted:
            self.budgets = drawn_down(self.budgets, nomination.evicted)

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """Returns the disruption budgets, in the order of their names, with the disruptions that are left in the cycle.

        An eviction that was requested and not carried out yet is not in a budget's status. A pod that is being deleted
        is: the disruption controller counts it as disrupted, or as unhealthy.
        """
        on_their_way = [
            victim_of(pod_record) for pod_record in self._cache.evicting.values() if not pod_record.deleting
        ]
        return drawn_down(self._cache.cluster_objects.budgets_of(), on_their_way)

    def node_of(self, pod: PodRecord) -> str:
        """Returns the node that a pod is nominated for at present; empty without one."""
        return self.nominated.get(pod.uid, "" if pod.uid in self.ended else pod.nominated)

    def is_evicted(self, uid: str) -> bool:
        """Returns True for a pod whose eviction is requested, in this cycle or before it."""
        return uid in self.evicted or uid in self._cache.evicting

    def leaving_from(self, row: int, priority: int) -> list[Assignment]:
        """Returns the pods of a node with a priority below this one that are being deleted or whose eviction is
        requested.
        """
        there = self._cache.on.get(row, {})
        return [
            assignment
            for uid, assignment in there.items()
            if assignment.pod_class.priority < priority and (assignment.terminating or self.is_evicted(uid))
        ]

    def evicted_pods(self) -> Iterator[PodRecord]:
        """Yields every pod whose eviction is requested, those of earlier cycles first."""
        yield from self._cache.evicting.values()
        pods = self._cache.view.pods
        yield from (pods[uid] for uid in self.evicted if uid not in self._cache.evicting)


def least_first(nominated: Iterable[PodRecord]) -> list[PodRecord]:
    """Sorts nominated pods by priority, equal ones by uid: capacity is kept for the last one first."""
    return sorted(nominated, key=lambda pod: (pod.pod_class.priority if pod.pod_class else 0, pod.uid))


def victim_of(pod_record: PodRecord) -> Victim:
    """Returns a pod as preemption compares it; one that has not started counts as the latest."""
    assert pod_record.pod_class is not None, "only pods that have been read are evicted"
    pod_class = pod_record.pod_class
    return Victim(
        pod_record.uid, pod_record.name, pod_class.labels, pod_class.priority, pod_record.started_ns or _NEVER_STARTED
    )
