"""The features of a gang by which its wait is recorded, and those of others compared with it."""

from services.scheduler.state.gang_records import GangRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.priority import priority
from shared.domain.qos import qos

_KEY = "priority and QoS class"


def classes_of(view: SchedulerState, record: GangRecord) -> tuple[str, str, str]:
    """Returns the quota, the priority class and the QoS class of the first pod of a gang; empty without one."""
    uid = min(record.members, default="")
    pod_class = view.pods[uid].pod_class if uid else None
    if pod_class is None:
        return "", "", ""
    entry = view.quota.entry_of(uid, pod_class.namespace, pod_class.labels, pod_class.request)
    found = pod_class.cached.get(_KEY)
    if found is None:
        found = pod_class.cached[_KEY] = str(priority(pod_class.pod)), str(qos(pod_class.pod))
    return entry.quota if entry is not None else "", *found


def waited_ns(view: SchedulerState, group: tuple[str, ...], now_ns: int) -> int:
    """Returns how long each gang of a group has had enough pods; 0 where one has too few, or does not exist."""
    records = [view.gangs.gangs.get(gang) for gang in group]
    complete_ns = [record.complete_ns if record is not None else 0 for record in records]
    return max(now_ns - max(complete_ns), 0) if all(complete_ns) else 0
