"""Pods: where each is, or what it waits for."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from cli.kinds.kind import Column, Kind, get_command
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal import name_completion
from cli.terminal.amounts import human_amounts
from services.scheduler.explain.rejected_quota import rejected_quota_of
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.log.admin.session import reading


class PodListed(msgspec.Struct, frozen=True):
    """A pod that exists.

    Attributes:
        status: `bound`, `placed`, `waiting`, `ended` or `deleting`.
        node: where it is, or is to be; empty without one.
        requests: resource -> amount, cpu in milli-cores, memory in bytes.
        attempts: cycles without a node since it was last placed.
    """

    namespace: str
    name: str
    pod_uid: str
    status: str
    node: str
    quota: str
    gang: str
    priority: int
    scheduler: str
    requests: dict[str, int]
    attempts: int


async def read(postgres: str) -> Sequence[PodListed]:
    """Reads all pods, by name."""
    async with reading(postgres) as log:
        view = await scheduler_state(log)
    there = [each for each in view.pods.values() if each.since and each.pod_class and not each.pod_class.reserves]
    return [_listed(view, each) for each in sorted(there, key=attrgetter("name", "uid"))]


def _listed(view: SchedulerState, record: PodRecord) -> PodListed:
    namespace, _, name = record.name.rpartition("/")
    pod_class, entry = record.pod_class, view.quota.pods.get(record.uid)
    assert pod_class is not None, "chosen because it has one"
    return PodListed(
        namespace,
        name,
        record.uid,
        _status(record),
        record.node_or_placement(),
        rejected_quota_of(record) or (entry.quota if entry is not None else ""),
        view.gangs.gang_of.get(record.uid, ""),
        pod_class.priority,
        pod_class.scheduler,
        dict(pod_class.request),
        record.attempts,
    )


def _status(record: PodRecord) -> str:
    if record.ended:
        return "ended"
    if record.deleting:
        return "deleting"
    if record.node:
        return "bound"
    return "placed" if record.is_placed() else "waiting"


KIND = Kind(
    "pod",
    "pods",
    read,
    (
        Column("name", attrgetter("name")),
        Column("status", attrgetter("status")),
        Column("node", lambda item: item.node or "-"),
        Column("quota", lambda item: item.quota or "-"),
        Column("gang", lambda item: item.gang.removeprefix(f"{item.namespace}/") or "-"),
        Column("requests", lambda item: human_amounts(item.requests)),
        Column("priority", attrgetter("priority"), is_wide=True, is_right=True),
        Column("tries", attrgetter("attempts"), is_wide=True, is_right=True),
        Column("scheduler", attrgetter("scheduler"), is_wide=True),
    ),
    is_namespaced=True,
    complete=name_completion.pods,
)

get = get_command(KIND, "List pods: where each is, its quota, gang and requests. `koord pending` has those that wait.")
