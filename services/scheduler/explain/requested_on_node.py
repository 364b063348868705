"""The amounts that are requested on a node, as the scheduler counts them, from the State alone: no array is made.

A reserve pod counts with what its owners leave of it (`cache/reservation_holds.py`). On a node with amplified cpu the
CPUs that pods have for themselves count amplified, as in the filter of NodeNUMAResource.

Source: spec/scheduler-workloads.md 1.4; spec/scheduler-core.md 4.2.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from services.scheduler.cache.reservation_holds import ReservationHolds
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import (
    BadRatios,
    amplified,
    read_ratios,
)
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.amounts import total
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.domain.reservation import UnreadableReservation, read_reservation
from shared.domain.resource_status import ResourceStatus
from shared.kube.json_text import read_json
from shared.kube.node import Node
from shared.kube.resource_names import RESERVATIONS
from shared.kube.system_annotations import RESOURCE_STATUS


def requested_on(
    view: SchedulerState, node: Node, pods: Iterable[PodRecord], *, believes_annotations: bool
) -> dict[str, int]:
    """Returns resource -> amount, cpu in milli-cores, memory in bytes.

    Args:
        pods: the pods and reserve pods that are on the node, or placed there.
        believes_annotations: as in `PodRecord.assignment`.
    """
    found = ((each.uid, each.assignment(believes_annotations=believes_annotations)) for each in pods)
    assigned = {uid: each for uid, each in found if each is not None}
    there = _without_owners(view, assigned)
    sums = dict(total(each.pod_class.request for each in there))
    own = 1000 * len(frozenset[int]().union(*map(_own_cpus, there)))
    if own and sums.get("cpu", 0) >= own:
        sums["cpu"] += amplified(own, _cpu_ratio(node)) - own
    return sums


def _without_owners(view: SchedulerState, assigned: dict[str, Assignment]) -> list[Assignment]:
    """Returns the pods; of each reserve pod what its owners leave."""
    reserves = {uid: each for uid, each in assigned.items() if each.pod_class.reserves}
    if not reserves:
        return list(assigned.values())
    holds = ReservationHolds()
    for each in reserves.values():
        body = view.objects.get(RESERVATIONS, {}).get(each.name)
        with suppress(UnreadableReservation):
            holds.set(each.name, read_reservation(body) if body is not None else None)
    for uid, each in assigned.items():
        holds.note_owner(uid, None, each)
    left = (holds.counted(uid, each) if uid in reserves else each for uid, each in assigned.items())
    return [each for each in left if each is not None]


def _own_cpus(assigned: Assignment) -> frozenset[int]:
    """Returns the CPUs that a pod has for itself."""
    text = (assigned.allocation or {}).get(RESOURCE_STATUS, "")
    if not text:
        return frozenset()
    try:
        return frozenset(parse_cpus(read_json(text, ResourceStatus).cpuset))
    except (msgspec.MsgspecError, BadCpuList):
        return frozenset()


def _cpu_ratio(node: Node) -> float:
    try:
        return read_ratios(node.metadata.annotations).get("cpu", 1)
    except BadRatios:
        return 1
