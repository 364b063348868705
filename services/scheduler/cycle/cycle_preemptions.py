"""Preemptions of one scheduling cycle, as those that follow in the same cycle see them.

The State contains a choice only once the cycle is recorded. Within the cycle, its victims already count as terminating,
their disruptions as used up, and the nominations that it ended as over: for the preemption on nodes as for that inside
quotas.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

from services.scheduler.cache.disruption_budgets import Budget, Victim, drawn_down
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.pod_record import Assignment, PodRecord
from shared.events import Event
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodNominated

_NEVER_STARTED = 1 << 62


class CyclePreemptions:
    """Victims of this cycle, and those of earlier cycles and of extender calls that still run.

    Attributes:
        evicted: uids of the pods whose eviction this cycle requests, in the order of its events.
        nominated: uid -> node of the pods that this cycle nominates.
        ended: uids of the pods whose nomination this cycle ends.
    """

    def __init__(self, cache: CycleInputs) -> None:
        """Begins a cycle on a settled cache."""
        self._cache = cache
        self.evicted: dict[str, None] = {}
        self.nominated: dict[str, str] = {}
        self.ended: dict[str, None] = {}

    def follow(self, events: Iterable[Event]) -> None:
        """Counts what the cycle has decided; other events change nothing."""
        pods = self._cache.view.pods
        victims: list[Victim] = []
        for event in events:
            if isinstance(event, EvictionRequested):
                self.evicted[event.pod_uid] = None
                victims.append(victim_of(pods[event.pod_uid]))
            elif isinstance(event, PodNominated) and event.node:
                self.nominated[event.pod_uid] = event.node
            elif isinstance(event, PodNominated):
                self.ended[event.pod_uid] = None
        if victims:
            self.budgets = drawn_down(self.budgets, victims)

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


def victim_of(pod_record: PodRecord) -> Victim:
    """Returns a pod as preemption compares it; one that has not started counts as the latest."""
    assert pod_record.pod_class is not None, "only pods that have been read are evicted"
    pod_class = pod_record.pod_class
    return Victim(
        pod_record.uid, pod_record.name, pod_class.labels, pod_class.priority, pod_record.started_ns or _NEVER_STARTED
    )
