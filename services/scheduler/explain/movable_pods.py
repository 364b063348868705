"""Which running pods a plan may move: what the descheduler evicts without explicit configuration, and no others.

Source: spec/descheduler.md 4.3.
"""

from services.scheduler.state.packed_controllers import unpacked
from services.scheduler.state.pod_attempts_and_refusals import NO_DECISIONS
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.priority import SYSTEM_CRITICAL
from shared.kube.system_annotations import RESERVATION_ALLOCATED

_OF_THE_NODE = frozenset(("DaemonSet", "Node"))


def why_fixed(view: SchedulerState, pod: PodRecord) -> str:
    """Returns why a pod may not move, in words that follow a number of pods; empty for a running pod of a workload that
    makes it anew on another node, without content on this one.

    Pods of gangs move as a whole or not at all, and the capacity of a Reservation does not move with its pod.
    """
    pod_class = pod.pod_class
    if pod_class is None or pod_class.fault or pod.ended or pod.deleting:
        return "ending or unreadable"
    if pod_class.priority >= SYSTEM_CRITICAL:
        return "critical"
    controllers = [each.kind for each in unpacked(pod.controllers) if each.controller]
    if not controllers:
        return "without a controller"
    if not _OF_THE_NODE.isdisjoint(controllers):
        return "of a DaemonSet or of the node"
    if pod_class.pod.spec.local_storage:
        return "with local storage"
    if pod.uid in view.gangs.gang_of:
        return "of a gang"
    allocations = (pod.allocation or {}, (pod.decisions or NO_DECISIONS).placed_allocation or {})
    return "in a Reservation" if any(RESERVATION_ALLOCATED in each for each in allocations) else ""
