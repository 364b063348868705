"""When pods are expected to end: by their deadline, or at an unknown time if they run to completion."""

from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.instants import SECOND

ENDING_S = 60
"""From a deadline to the release of the node: the grace period, and the report of the kubelet."""


def deadline_ns(pod_class: PodClass, started_ns: int, now_ns: int) -> int | None:
    """Returns the instant by which the deadline of a pod ends it; None without a deadline.

    Args:
        started_ns: 0 for a pod that has not started: its deadline counts from its start, not before `now_ns`.
    """
    seconds = pod_class.pod.spec.active_deadline_seconds
    return None if seconds is None else (started_ns or now_ns) + (seconds + ENDING_S) * SECOND


def runs_to_completion(pod_class: PodClass) -> bool:
    """Returns True for a pod that ends by itself at an unknown time."""
    return pod_class.pod.spec.restart_policy in ("Never", "OnFailure")
