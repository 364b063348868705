"""The amounts that the quota of a waiting pod lacks for it at present, also where something else refused the pod at its
last attempt.

A pod is charged after a node was found for it, so the attempt of one that no node takes names no quota. Where its quota
has no capacity either, free capacity on the nodes alone would not place it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.state.scheduler_state import SchedulerState


class QuotaShortage(NamedTuple):
    """A quota without capacity for a pod.

    Attributes:
        amounts: resource -> what is missing in it, or in one above it where those are checked; empty where no
            preemption can help: the pod is not preemptible, and pods like it use up the quota's min.
    """

    quota: str
    amounts: Mapping[str, int]


def quota_shortage(view: SchedulerState, uid: str) -> QuotaShortage | None:
    """Returns the shortage of a pod's quota; None for a pod that fits, is charged already, or has no limited quota."""
    entry = view.quota.pods.get(uid)
    if entry is None or entry.charged:
        return None
    amounts = view.quota.shortage(entry, {}, {})
    return None if amounts == {} else QuotaShortage(entry.quota, amounts or {})
