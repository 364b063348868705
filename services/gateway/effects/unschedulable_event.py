"""The Kubernetes Event of an unschedulable pod, which `kubectl describe` shows.

An Event is named by the pod and the reason's code, so that repetitions are counted on one object instead of filling
etcd.
"""

from hashlib import blake2b
from typing import Any

from shared.events.scheduling import PodUnschedulable
from shared.kube.instants import SECOND, instant_text

DEFAULT_SCHEDULER = "koord-scheduler"
MAX_MESSAGE = 1024  # bytes that the API accepts


def unschedulable_event(
    intent: PodUnschedulable, scheduler: str, *, now_ns: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the Event for an unschedulable pod, and the merge patch that counts a repetition.

    Args:
        intent: the reason; its `attempt` is the count.
        scheduler: the pod's schedulerName; empty means koord-scheduler.
        now_ns: time of the Event, nanoseconds since the epoch.
    """
    namespace, _, name = intent.pod.rpartition("/")
    mark = blake2b(f"{intent.pod_uid} {intent.code}".encode(), digest_size=8).hexdigest()
    component = f"koordstream/{scheduler or DEFAULT_SCHEDULER}"
    now = instant_text(now_ns // SECOND * SECOND)
    message = intent.message.encode()[:MAX_MESSAGE].decode(errors="ignore")
    repeated = {"message": message, "count": intent.attempt, "lastTimestamp": now}
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
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": now,
        **repeated,
    }
    return event, repeated
