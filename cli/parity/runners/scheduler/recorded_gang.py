"""A gang of the scheduler's State in the form of the recorded ones."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.gang import ONCE_SATISFIED
from shared.kube.instants import SECOND

RecordedGang = dict[str, Any]


def recorded_gang(
    view: SchedulerState, gangs: GangGrouping, gang: str, second_stage: Mapping[str, str]
) -> RecordedGang:
    """Returns the settings of a gang, and the names of its members by what they do.

    Args:
        second_stage: pod -> what else it does, where upstream counts it twice.
    """
    record = view.gangs.gangs[gang]
    settings = record.settings
    found: RecordedGang = {
        "from": "GangFromPodGroupCrd" if record.has_pod_group else "GangFromPodAnnotation",
        "initialised": settings is not None,
        "mode": "Strict" if settings is None or settings.is_strict else "NonStrict",
        "matchPolicy": ONCE_SATISFIED if settings is None else gangs.policy(record),
        "groupId": gang if settings is None else ",".join(settings.groups),
        "onceSatisfied": gangs.was_bound(gang),
        "children": [],
        "pending": [],
        "waiting": [],
        "bound": [],
    }
    if settings is not None:
        waiting_ns = gangs.waiting_ns(record)
        found |= {"min": settings.minimum, "total": settings.total, "waitSeconds": waiting_ns // SECOND}
    names = {"pending": "pending", "placed": "waiting", "bound": "bound"}
    for uid, member in record.members.items():
        name = view.pods[uid].name
        found["children"].append(name)
        for stage in (gangs.stage(uid, member), second_stage.get(name, "")):
            if stage:
                found[names[stage]].append(name)
    for each in ("children", *names.values()):
        found[each].sort()
    return found
