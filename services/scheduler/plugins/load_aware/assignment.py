"""When a pod counts on a node, since when, and until when its estimate counts whatever is measured.

Pure functions of kept pods, for whoever keeps a `LoadAwareLedger` up to date.

Source: spec/scheduler-core.md 3.3; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from services.scheduler.plugins.load_aware.annotations import read_whole
from services.scheduler.plugins.load_aware.args import LoadAwareArgs
from shared.kube.instants import SECOND, instant_ns
from shared.kube.pod import Pod

AFTER_SCHEDULED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED_ANNOTATION = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
RESERVE_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"

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


def deadline_ns(pod: Pod, args: LoadAwareArgs, assigned_ns: int) -> int | None:
    """The instant up to which reports do not replace the pod's estimate, or None.

    The window after initialisation outranks the one after scheduling, once the pod is initialised.
    """
    after_initialized = _window_s(pod, args, AFTER_INITIALIZED_ANNOTATION, args.estimated_seconds_after_initialized)
    if after_initialized > 0 and (initialized := _true_since_ns(pod, "Initialized")) is not None:
        return initialized + after_initialized * SECOND
    after_scheduled = _window_s(pod, args, AFTER_SCHEDULED_ANNOTATION, args.estimated_seconds_after_pod_scheduled)
    return assigned_ns + after_scheduled * SECOND if after_scheduled > 0 else None


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
