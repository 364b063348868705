"""The lifecycle of a bound pod under its kubelet, as far as the API shows it: start, end, removal after a deletion.

Every instant is derived from the pod itself, so no state is needed between two steps. Timestamps have whole seconds, as
the API writes them, and the steps follow the timestamps.
"""

from typing import NamedTuple

from msgspec.structs import replace

from shared.kube.instants import SECOND, BadTime, duration_ns, instant_ns, instant_text
from shared.kube.pod import ENDED_PHASES, Pod, PodCondition

RUNS_FOR = "simulator.koordinator.sh/runs-for"
"""Annotation of a pod: how long it runs before it has Succeeded, as a Go duration; without it the pod runs for ever."""


class PodTimings(NamedTuple):
    """Seconds from binding to start, from deletion to removal, and from the end to removal (0: it stays for ever)."""

    start_delay_s: float
    stop_delay_s: float
    keep_ended_s: float


def second_text(now_ns: int) -> str:
    """Formats an instant as the API does: whole seconds, truncated."""
    return instant_text(now_ns // SECOND * SECOND)


def next_change_ns(pod: Pod, timings: PodTimings) -> int | None:
    """Returns the instant of the pod's next change by its kubelet; None without one."""
    if pod.metadata.deletion_timestamp:
        return instant_ns(pod.metadata.deletion_timestamp)
    phase = pod.status.phase
    if phase in ENDED_PHASES:
        return _after(_ended_at(pod), timings.keep_ended_s) if timings.keep_ended_s else None
    if not pod.spec.node_name:
        return None
    if phase != "Running":
        return _after(_scheduled_at(pod), timings.start_delay_s)
    runs_ns = runs_for_ns(pod)
    return None if runs_ns is None or not pod.status.start_time else instant_ns(pod.status.start_time) + runs_ns


def next_pod(pod: Pod, now_ns: int) -> Pod | None:
    """Returns the pod after its next change; None when that is its removal."""
    if pod.metadata.deletion_timestamp or pod.status.phase in ENDED_PHASES:
        return None
    return ended(pod, now_ns) if pod.status.phase == "Running" else started(pod, now_ns)


def started(pod: Pod, now_ns: int) -> Pod:
    """Returns the pod with all containers running."""
    at = second_text(now_ns)
    status = pod.status
    for type_ in ("Initialized", "ContainersReady", "Ready"):
        status = replace(
            status, conditions=with_condition(status.conditions, PodCondition(type=type_, status="True"), at)
        )
    return replace(pod, status=replace(status, phase="Running", start_time=at))


def ended(pod: Pod, now_ns: int) -> Pod:
    """Returns the pod with all containers succeeded."""
    at = second_text(now_ns)
    status = pod.status
    for type_ in ("ContainersReady", "Ready"):
        condition = PodCondition(type=type_, status="False", reason="PodCompleted")
        status = replace(status, conditions=with_condition(status.conditions, condition, at))
    return replace(pod, status=replace(status, phase="Succeeded"))


def with_condition(conditions: tuple[PodCondition, ...], new: PodCondition, at: str) -> tuple[PodCondition, ...]:
    """Replaces the condition of the same type; its transition time changes only with its status."""
    for index, old in enumerate(conditions):
        if old.type == new.type:
            since = old.last_transition_time if old.status == new.status else at
            return (*conditions[:index], replace(new, last_transition_time=since), *conditions[index + 1 :])
    return (*conditions, replace(new, last_transition_time=at))


def runs_for_ns(pod: Pod) -> int | None:
    """Returns the pod's running time in nanoseconds; None is for ever, also for a text that is no duration."""
    text = (pod.metadata.annotations or {}).get(RUNS_FOR)
    try:
        return duration_ns(text) if text else None
    except BadTime:
        return None


def _scheduled_at(pod: Pod) -> int:
    condition = pod.condition("PodScheduled")
    text = (
        condition.last_transition_time if condition and condition.status == "True" else pod.metadata.creation_timestamp
    )
    return instant_ns(text) if text else 0


def _ended_at(pod: Pod) -> int:
    condition = pod.condition("Ready")
    text = condition.last_transition_time if condition else pod.metadata.creation_timestamp
    return instant_ns(text) if text else 0


def _after(since_ns: int, delay_s: float) -> int:
    return since_ns + int(delay_s * SECOND)
