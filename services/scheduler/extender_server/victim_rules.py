"""Rules for the victims that an extender's caller names: its word alone evicts nobody.

kube-scheduler chooses victims by its own rules, from its own view of the cluster; another caller may name any pod.
Therefore the preemptor and the victims are read from the State.
"""

from collections.abc import Callable, Collection, Mapping

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.extender_server.api_types import MetaVictims
from services.scheduler.state.pod_scheduling_record import PodRecord


def may_preempt(pod_record: PodRecord) -> bool:
    """Returns True for a pod that waits for a node, and may evict others for it."""
    waits = not (pod_record.node or pod_record.ended or pod_record.deleting)
    pod_class = pod_record.pod_class
    return waits and pod_class is not None and pod_class.pod.spec.preemption_policy != "Never"


def fault_of(
    node: str, victims: MetaVictims, priority: int, pod_of: Callable[[str], PodRecord | None], max_victims: int
) -> str:
    """Returns the reason why the victims of a node may not be evicted; empty for none.

    Args:
        priority: of the preemptor.
        pod_of: uid -> the pod, if it is known. A victim that is unknown is no fault: it may have gone a moment ago.
        max_victims: on one node.
    """
    uids = [victim.uid for victim in victims.pods or ()]
    if len(uids) > max_victims:
        return (
            f"{len(uids)} victims on {node}, at most {max_victims} are evicted (KOORD_SCHEDULER_EXTENDER_MAX_VICTIMS)"
        )
    for uid in uids:
        victim = pod_of(uid)
        if victim is None:
            continue
        assignment = victim.assignment()
        if assignment is None or assignment.node != node:
            return f"pod {victim.name} does not run on {node}"
        if assignment.pod_class.holds_capacity:
            return f"{victim.name} is a Reservation, or acts as one, and is not evicted"
        if assignment.pod_class.priority >= priority:
            return f"pod {victim.name} on {node} has priority {assignment.pod_class.priority}, not below {priority}"
    return ""


def fault_of_gang(preemptor: PodRecord, priority: int, rest: Collection[Victim], gang_of: Mapping[str, str]) -> str:
    """Returns the reason why the gangs of victims may not be ended for a pod; empty for none.

    Args:
        rest: the members that would have to be evicted as well.
        gang_of: uid -> gang.
    """
    own = gang_of.get(preemptor.uid)
    for victim in rest:
        gang = gang_of.get(victim.uid)
        if victim.priority >= priority:
            return f"gang {gang} would be ended, whose pod {victim.name} has priority {victim.priority}, not below {priority}"
        if gang == own:
            return f"gang {gang} is the one of pod {preemptor.name}"
    return ""
