"""Pods that count on a node, and the time until which their estimates count, whatever is measured.

Source: spec/scheduler-core.md 3.3; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from typing import NamedTuple

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.state.ignored_pod_settings import ESTIMATED_AFTER_INITIALIZED, ESTIMATED_AFTER_SCHEDULED
from services.scheduler.state.strict_annotation_parsing import read_whole
from shared.kube.instants import SECOND
from shared.kube.pod import Pod

RESERVE_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"


class Windows(NamedTuple):
    """Seconds for which a pod counts with its estimate, whatever is measured; 0 or less: not at all."""

    after_scheduled_s: int
    after_initialized_s: int


def counts_on_node(pod: Pod) -> bool:
    """Returns false for a pod that only stands for a Reservation: nothing runs in it."""
    return (pod.metadata.annotations or {}).get(RESERVE_ANNOTATION) != "true"


def windows_of(pod: Pod, args: LoadAwareArgs) -> Windows:
    """The time for which this pod's estimate counts: of the arguments, or of its annotations where allowed."""
    return Windows(
        after_scheduled_s=_window_s(pod, args, ESTIMATED_AFTER_SCHEDULED, args.estimated_seconds_after_pod_scheduled),
        after_initialized_s=_window_s(pod, args, ESTIMATED_AFTER_INITIALIZED, args.estimated_seconds_after_initialized),
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
