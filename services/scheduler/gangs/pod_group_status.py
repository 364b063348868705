"""The status of PodGroups: the phase of a gang, and its members by what they do.

A function of the State and `now`; what differs from the object is recorded as its desired status.

    Pending        -> PreScheduling  it has minMember pods
    PreScheduling,
    Scheduling     -> Scheduling     fewer than minMember of them have a node
    Scheduling     -> Scheduled      minMember of them have a node
    Scheduled      -> Running        minMember of them run or have succeeded
    any of these   -> Failed         one has failed, and with the failed ones there are minMember
    any of these   -> Finished       minMember of them have succeeded
    any of these   -> Pending        it has no pods

Failed and Finished are final. Upstream passes one phase at each change of an object; here all that hold at once are
passed at once. Source: spec/scheduler-workloads.md 2.4; upstream pkg/scheduler/plugins/coscheduling/controller.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from services.scheduler.state.gang_records import GangRecord
from services.scheduler.state.reserve_pods import LastStatus, status_digest
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import POD_GROUPS
from shared.events import Draft
from shared.events.intents import FieldsDesired
from shared.kube.instants import SECOND, BadTime, instant_ns, instant_text

FIELDS = "pod-group"
"""The field group of the status."""

GIVEN_UP_NS = 48 * 3600 * SECOND
"""A PodGroup whose scheduling began this long after its creation, and of which exactly minMember pods have a node and
none runs, is left as it is. Source: upstream's controller.
"""

PENDING, PRE_SCHEDULING, SCHEDULING, SCHEDULED, RUNNING, FAILED, FINISHED = (
    "Pending", "PreScheduling", "Scheduling", "Scheduled", "Running", "Failed", "Finished",
)  # fmt: skip


class PodGroupStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status as the API has it.

    Attributes:
        occupied_by: the owners of the pods, `namespace/name`, sorted and joined by commas.
        scheduled: number of pods with a node, ended ones included; running, succeeded, failed: by phase.
    """

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


def pod_group_drafts(view: SchedulerState, changed: Iterable[str], now_ns: int) -> tuple[Draft, ...]:
    """Returns the status writes of those of these gangs whose PodGroup has a status that differs."""
    return tuple(draft for gang in sorted(changed) for draft in _of_one(view, gang, now_ns))


def _of_one(view: SchedulerState, gang: str, now_ns: int) -> Iterator[Draft]:
    body, record = view.objects.get(POD_GROUPS, {}).get(gang), view.gangs.gangs.get(gang)
    if body is None or record is None or record.pod_group is None:
        return
    metadata, there = body.get("metadata") or {}, _read(body.get("status"))
    status = desired_status(record, there, gang, now_ns)
    if status == there or _is_given_up(there, record.pod_group.minimum, metadata):
        return
    patch = {"status": msgspec.to_builtins(status)}
    if status.schedule_start_time is None:
        del patch["status"]["scheduleStartTime"]
    uid, digest = str(metadata.get("uid", "")), status_digest(patch["status"])
    if view.pod_group_statuses.get(gang) == LastStatus(uid, digest):
        return  # it is on its way
    yield Draft(FieldsDesired(resource=POD_GROUPS, name=gang, fields=FIELDS, patch=patch, uid=uid))


def desired_status(record: GangRecord, there: PodGroupStatus, gang: str, now_ns: int) -> PodGroupStatus:
    """Returns the status that a gang should have after the one that is there."""
    status = there
    while (after := _next(record, status, gang, now_ns)) != status:
        status = after
    return status


def _next(record: GangRecord, status: PodGroupStatus, gang: str, now_ns: int) -> PodGroupStatus:
    assert record.pod_group is not None, "one that cannot be read has no status"
    change = partial(msgspec.structs.replace, status)
    minimum, members = record.pod_group.minimum, record.members
    if status.phase in (FAILED, FINISHED):
        return status
    if not status.phase:
        return change(phase=PENDING)
    if status.phase == PENDING:
        if not len(members) >= minimum > 0:
            return status
        namespace = gang.partition("/")[0]
        owners = sorted({f"{namespace}/{member.owner}" for member in members.values() if member.owner})
        return change(phase=PRE_SCHEDULING, occupied_by=",".join(owners))
    if not members:
        return change(phase=PENDING)
    phases = Counter(member.phase for member in members.values())
    scheduled = sum(member.is_bound for member in members.values())
    running, succeeded, failed = phases["Running"], phases["Succeeded"], phases["Failed"]
    phase, begun = SCHEDULED if scheduled >= minimum else SCHEDULING, status.schedule_start_time
    if phase == SCHEDULING and begun is None:
        begun = instant_text(now_ns // SECOND * SECOND)
    if phase == SCHEDULED and succeeded + running >= minimum:
        phase = RUNNING
    if failed and failed + running + succeeded >= minimum:
        phase = FAILED
    if succeeded >= minimum:
        phase = FINISHED
    return change(
        phase=phase, scheduled=scheduled, running=running, succeeded=succeeded, failed=failed, schedule_start_time=begun
    )


def _is_given_up(there: PodGroupStatus, minimum: int, metadata: Mapping[str, Any]) -> bool:
    if there.scheduled != minimum or there.running or there.schedule_start_time is None:
        return False
    try:
        created_ns = instant_ns(str(metadata.get("creationTimestamp", "")))
        return instant_ns(there.schedule_start_time) - created_ns > GIVEN_UP_NS
    except BadTime:
        return False


def _read(status: Any) -> PodGroupStatus:
    """Returns the status of an object; the one of a new object where it cannot be read."""
    try:
        return msgspec.convert(status or {}, PodGroupStatus)
    except msgspec.ValidationError:
        return PodGroupStatus()
