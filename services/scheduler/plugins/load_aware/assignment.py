"""When a pod counts on a node, since when, and until when its estimate counts whatever is measured.

Pure functions of kept pods, for whoever keeps a `LoadAwareLedger` up to date.

Source: spec/scheduler-core.md 3.3; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from typing import NamedTuple

from services.scheduler.plugins.load_aware.annotations import read_whole
from services.scheduler.plugins.load_aware.args import LoadAwareArgs
from shared.kube.instants import SECOND, instant_ns
from shared.kube.pod import Pod

AFTER_SCHEDULED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
RESERVE_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"


class Windows(NamedTuple):
    """Seconds for which a pod counts with its estimate, whatever is measured; 0 or less: not at all."""

    after_scheduled_s: int
    after_initialized_s: int


_ENDED = ("Succeeded", "Failed")


def has_ended(pod: Pod) -> bool:
    """Whether the pod has run to its end."""
    return pod.status.phase in _ENDED


def uses_its_node(pod: Pod) -> bool:
    """Whether a pod uses anything where it is: not once it has ended, and not if it only stands for a Reservation."""
    if has_ended(pod):
        return False
    return (pod.metadata.annotations or {}).get(RESERVE_ANNOTATION) != "true"


def counts_anew(before: Pod, after: Pod) -> bool:
    """Whether a change of an assigned pod replaces what is kept of it; other changes (labels, annotations) do not."""
    return before.spec != after.spec or before.status.conditions != after.status.conditions


def assigned_at_ns(pod: Pod, now_ns: int) -> int:
    """Since when the pod counts: the time of its PodScheduled condition, or `now_ns` as long as that is not set."""
    at = _true_since_ns(pod, "PodScheduled")
    return now_ns if at is None else at


def initialized_at_ns(pod: Pod) -> int | None:
    """When the pod's init containers were done, or None as long as that is not known."""
    return _true_since_ns(pod, "Initialized")


def windows_of(pod: Pod, args: LoadAwareArgs) -> Windows:
    """How long this pod's estimate counts whatever is measured: the arguments', or its own annotations' where allowed."""
    return Windows(
        after_scheduled_s=_window_s(pod, args, AFTER_SCHEDULED_ANNOTATION, args.estimated_seconds_after_pod_scheduled),
        after_initialized_s=_window_s(
            pod, args, AFTER_INITIALIZED_ANNOTATION, args.estimated_seconds_after_initialized
        ),
    )


def deadline_ns(windows: Windows, assigned_ns: int, initialized_ns: int | None) -> int | None:
    """The instant up to which reports do not replace the estimate, or None.

    The window after initialisation outranks the one after scheduling, once the pod is initialised.
    """
    if windows.after_initialized_s > 0 and initialized_ns is not None:
        return initialized_ns + windows.after_initialized_s * SECOND
    return assigned_ns + windows.after_scheduled_s * SECOND if windows.after_scheduled_s > 0 else None


def _window_s(pod: Pod, args: LoadAwareArgs, annotation: str, default: int | None) -> int:
    if args.allow_customize_estimation and (annotations := pod.metadata.annotations):
        own = read_whole(annotations.get(annotation))
        if own >= 0:
            return own
    return default or 0


def _true_since_ns(pod: Pod, type_: str) -> int | None:
    condition = pod.condition(type_)
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return instant_ns(condition.last_transition_time)
