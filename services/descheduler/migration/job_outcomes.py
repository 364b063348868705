"""Names and texts of the steps and ends of a PodMigrationJob, as upstream writes them.

Source: spec/descheduler.md 3.1, 3.10.
"""

COMPLETE = "Complete"

# Types of conditions.
RESERVATION_CREATED = "ReservationCreated"
RESERVATION_SCHEDULED = "ReservationScheduled"
EVICTION = "Eviction"
POD_SCHEDULED = "PodScheduled"
POD_BOUND_RESERVATION = "PodBoundReservation"
BOUND_POD_READY = "BoundPodReady"
RESERVATION_BOUND = "ReservationBound"

# Reasons.
TIMEOUT = "Timeout"
FAILED_CREATE_RESERVATION = "FailedCreateReservation"
RESERVATION_EXPIRED = "ReservationExpired"
UNSCHEDULABLE = "Unschedulable"
FORBIDDEN = "ForbiddenMigratePod"
MISSING_POD = "MissingPod"
MISSING_RESERVATION = "MissingReservation"
GANG_STAYS = "GangStays"
"""Of this system: others of its gang, with which it moves or not at all, do not move."""
WAIT_FOR_GANG = "WaitForGang"
"""Of this system: a place is not yet held for each member of its gang that moves."""
INVALID_POD_REF = "InvalidPodRef"
EVICTING = "Evicting"
FAILED_EVICT = "FailedEvict"
EVICT_COMPLETE = "EvictComplete"
WAIT_FOR_POD_BIND = "WaitForPodBindReservation"
WAIT_FOR_POD_READY = "WaitForBoundPodReady"


def forbidden_message(pod: str) -> str:
    """Returns the message of a job whose pod may never be evicted."""
    return f'Pod "{pod}" is forbidden to migrate because it does not meet the requirements'


def without_successor(pod: str) -> str:
    """Returns the message of a job that would hold a place for a successor that nobody makes."""
    return (
        f'Pod "{pod}" has no controller: nothing would make it anew in a place that is held; only a job with mode '
        "EvictDirectly moves it"
    )
