"""Pods in operating mode: running pods that act as a Reservation, each under the name `pod/NAMESPACE/NAME`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from services.scheduler.cache.reservation_holds import used_reservation
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import OPERATING_PODS


class OperatingPod(NamedTuple):
    """A pod in operating mode.

    Attributes:
        body: the Reservation as which it acts.
        placed: pods that were placed in it, `namespace/name`.
    """

    body: Mapping[str, Any]
    placed: tuple[str, ...]


def operating_pods(view: SchedulerState) -> dict[str, OperatingPod]:
    """Returns `pod/NAMESPACE/NAME` -> pod, by name."""
    there = {uid: body for uid, body in view.objects.get(OPERATING_PODS, {}).items() if uid in view.pods}
    placed: dict[str, list[str]] = {uid: [] for uid in there}
    for pod in view.pods.values() if there else ():
        assignment = pod.assignment()
        if assignment is not None and (uid := used_reservation(assignment.allocation)) in placed:
            placed[uid].append(pod.name)
    found = {
        f"pod/{view.pods[uid].name}": OperatingPod(body, tuple(sorted(placed[uid]))) for uid, body in there.items()
    }
    return dict(sorted(found.items()))
