"""When a refused pod is tried again: after a backoff that doubles, once something changed, and at the latest after
`FLUSH_S`.

Source: spec/scheduler-core.md 1.3.
"""

from services.scheduler.state.pod_attempts_and_refusals import NOT_PREPARED
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.instants import SECOND

FIRST_BACKOFF_S = 1
LONGEST_BACKOFF_S = 10
FLUSH_S = 300
"""A refused pod is tried again after this time even without an event."""


def backoff_ns(attempts: int) -> int:
    """Returns the backoff after a number of attempts: 0, 1, 2, 4, 8, 10, 10 ... s."""
    if attempts <= 0:
        return 0
    return min(FIRST_BACKOFF_S << min(attempts - 1, 8), LONGEST_BACKOFF_S) * SECOND


def backoff_ends_ns(attempts: int, tried_ns: int, refusals: int, placed_ns: int) -> int:
    """Returns the end of a pod's backoff; 0 without one.

    Args:
        attempts, tried_ns: cycles that refused it, and the time of the last one.
        refusals, placed_ns: of the gateway, which count where no cycle has refused it since, and the last placement.
    """
    if attempts:
        return tried_ns + backoff_ns(attempts)
    return placed_ns + backoff_ns(refusals) if refusals else 0


def has_changed(pod_record: PodRecord, config_seq: int) -> bool:
    """Returns True when a refused pod's class, or the configuration, changed since its last attempt, or when its node
    was released: no event need come then.
    """
    return (
        pod_record.changed_seq > pod_record.saw
        or pod_record.tried_seq < config_seq
        or NOT_PREPARED in pod_record.reasons
    )
