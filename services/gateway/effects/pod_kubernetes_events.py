"""The Kubernetes Events of a pod, which `kubectl describe pod` shows: Scheduled, FailedScheduling and SettingsIgnored.

An Event is named by the pod and what it says, so that repetitions are counted on one object instead of filling etcd.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import SECOND, instant_text

DEFAULT_SCHEDULER = "koord-scheduler"
MAX_MESSAGE = 1024  # bytes that the API accepts

Body = dict[str, Any]


def scheduled_event(intent: PodPlaced, scheduler: str, *, now_ns: int) -> tuple[Body, Body]:
    """Returns the Event for a pod that was bound, with kube-scheduler's words, and the patch that repeats it.

    Args:
        intent: the placement.
        scheduler: the pod's schedulerName; empty means koord-scheduler.
        now_ns: time of the binding, nanoseconds since the epoch.
    """
    message = f"Successfully assigned {intent.pod} to {intent.node}"
    about = {"type": "Normal", "reason": "Scheduled", "action": "Binding"}
    return _event(intent, intent.node, scheduler, about, message, count=1, now_ns=now_ns)


def unschedulable_event(intent: PodUnschedulable, scheduler: str, *, now_ns: int) -> tuple[Body, Body]:
    """Returns the Event for an unschedulable pod, and the merge patch that counts a repetition.

    Args:
        intent: the reason; its `attempt` is the count.
        scheduler: the pod's schedulerName; empty means koord-scheduler.
        now_ns: time of the Event, nanoseconds since the epoch.
    """
    about = {"type": "Warning", "reason": "FailedScheduling", "action": "Scheduling"}
    return _event(intent, intent.code, scheduler, about, intent.message, count=max(intent.attempt, 1), now_ns=now_ns)


def events_of(intent: PodPlaced | PodUnschedulable, scheduler: str, *, now_ns: int) -> Iterator[tuple[Body, Body]]:
    """Yields the Events about a decision, each with the merge patch for a repetition: settings that are ignored first.

    Args:
        intent, scheduler, now_ns: as below.
    """
    if (ignored := ignored_settings_event(intent, scheduler, now_ns=now_ns)) is not None:
        yield ignored
    if isinstance(intent, PodPlaced):
        yield scheduled_event(intent, scheduler, now_ns=now_ns)
    else:
        yield unschedulable_event(intent, scheduler, now_ns=now_ns)


def ignored_settings_event(
    intent: PodPlaced | PodUnschedulable, scheduler: str, *, now_ns: int
) -> tuple[Body, Body] | None:
    """Returns the Event about labels and annotations that the scheduler ignores; None for a pod without any.

    Args:
        intent: as its service recorded it.
        scheduler: the pod's schedulerName; empty means koord-scheduler.
        now_ns: time of the Event, nanoseconds since the epoch.
    """
    if not intent.ignored:
        return None
    about = {"type": "Warning", "reason": "SettingsIgnored", "action": "Scheduling"}
    return _event(intent, "SettingsIgnored", scheduler, about, "; ".join(intent.ignored), count=1, now_ns=now_ns)


def _event(
    intent: PodPlaced | PodUnschedulable,
    distinct: str,
    scheduler: str,
    about: Body,
    message: str,
    *,
    count: int,
    now_ns: int,
) -> tuple[Body, Body]:
    """Returns an Event and the merge patch for a repetition.

    Args:
        distinct: tells apart the Events of one pod.
        about: type, reason and action.
    """
    namespace, _, name = intent.pod.rpartition("/")
    mark = blake2b(f"{intent.pod_uid} {distinct}".encode(), digest_size=8).hexdigest()
    component = f"koordstream/{scheduler or DEFAULT_SCHEDULER}"
    now = instant_text(now_ns // SECOND * SECOND)
    shown = message.encode()[:MAX_MESSAGE].decode(errors="ignore")
    repeated = {"message": shown, "count": count, "lastTimestamp": now}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{mark}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": intent.pod_uid,
        },
        **about,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": now,
        **repeated,
    }
    return event, repeated
