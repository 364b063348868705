"""Events of a preemption: the nomination, the eviction requests, and the end of nominations of lower priority for the
node.

Source: spec/scheduler-core.md 2.7.
"""

from collections.abc import Iterable, Iterator, Sequence

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_preemptions import CyclePreemptions
from services.scheduler.framework.victim_selection import Candidate
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import PodNominated

NOMINATED_NODE = "nominated-node"
"""The field group of `status.nominatedNodeName`."""


def nomination(
    pod: PodRecord, candidate: Candidate, cycle: int, *, candidates: int = 0, quota: str = ""
) -> PodNominated:
    """Returns the event of a choice of victims.

    Args:
        candidates: number of nodes on which evictions would have helped.
        quota: the quota whose capacity the victims release; empty for a preemption on a node.
    """
    return PodNominated(
        pod_uid=pod.uid,
        pod=pod.name,
        node=candidate.node,
        cycle=cycle,
        victims=tuple(victim.uid for victim in candidate.victims),
        violations=candidate.violations,
        budgets=candidate.budgets,
        victim_pods=tuple(victim.name for victim in candidate.victims),
        victim_priorities=tuple(victim.priority for victim in candidate.victims),
        candidates=candidates,
        quota=quota,
    )


def consequences(
    cache: CycleInputs,
    cycle: CyclePreemptions,
    pod: PodRecord,
    pod_class: PodClass,
    event: PodNominated,
    victims: Sequence[Victim],
) -> tuple[Event, ...]:
    """Returns all events of a preemption, and counts them in the cycle."""
    events = tuple(_consequences(cache, cycle, pod, pod_class, event, victims))
    cycle.follow(events)
    return events


def _consequences(
    cache: CycleInputs,
    cycle: CyclePreemptions,
    pod: PodRecord,
    pod_class: PodClass,
    event: PodNominated,
    victims: Sequence[Victim],
) -> Iterator[Event]:
    yield event
    yield nominated_node(pod, event.node)
    where = f"in quota {event.quota}" if event.quota else f"on node {event.node}"
    for victim in victims:
        pod_record = cache.view.pods[victim.uid]
        if not pod_record.is_terminating():
            reason = f"preempted by {pod.name} of priority {pod_class.priority} {where}"
            yield EvictionRequested(pod_uid=victim.uid, pod=victim.name, reason=reason)
    for other in cache.nominated.values():
        if other.uid in cycle.ended or other.nominated != event.node:
            continue
        if other.pod_class is not None and other.pod_class.priority < pod_class.priority:
            yield PodNominated(pod_uid=other.uid, pod=other.name, node="", cycle=event.cycle)
            yield nominated_node(other, "")


def least_first(nominated: Iterable[PodRecord]) -> list[PodRecord]:
    """Sorts nominated pods by priority, equal ones by uid: capacity is kept for the last one first."""
    return sorted(nominated, key=lambda pod: (pod.pod_class.priority if pod.pod_class else 0, pod.uid))


def nominated_node(pod: PodRecord, node: str) -> FieldsDesired:
    """Returns the desired `status.nominatedNodeName` of a pod."""
    patch = {"status": {"nominatedNodeName": node or None}}
    return FieldsDesired(
        resource="pods", name=pod.name, fields=NOMINATED_NODE, patch=patch, subresource="status", uid=pod.uid
    )
