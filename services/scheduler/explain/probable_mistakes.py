"""Probable mistakes about a pod or Reservation that waits: requests that nothing can meet, names that nothing has, and
faults of its gang.

None of it is an error in itself: another scheduler may have the name, and a Reservation may be created later. A
function of the State and of the rules in force, for commands that read the log.
"""

from collections.abc import Iterator

import msgspec

from services.scheduler.explain.gang_status import ignored_settings
from services.scheduler.explain.impossible_requests import impossible_requests, missing_quota
from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.plugins.reservation.reservation_affinity import AFFINITY, ReservationAffinity, wish_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.closest_name import did_you_mean


def probable_mistakes(view: SchedulerState, rules: QueueRules, record: PodRecord) -> tuple[str, ...]:
    """Returns them for a pod without a node, or a Reservation without one."""
    pod_class = record.pod_class
    if pod_class is None:
        return ()
    found = (
        *impossible_requests(view, record),
        *missing_quota(view, pod_class),
        *_of_scheduler(rules, pod_class),
        *_of_affinity(view, pod_class),
        *_of_gang(view, rules, record),
    )
    return tuple(dict.fromkeys(found))


def _of_scheduler(rules: QueueRules, pod_class: PodClass) -> Iterator[str]:
    """Yields that no profile has the name: of a Reservation always, since no other scheduler places these. The scheduler
    that shadow mode compares with has its own pods.
    """
    name, there = pod_class.scheduler, list(rules.schedulers)
    if name in there or (name == rules.shadowed and not pod_class.reserves):
        return
    if pod_class.reserves:
        given = f"give one of {', '.join(there)} in spec.template.spec.schedulerName"
        yield f"no profile is named {name!r}, and other schedulers place no Reservations; {given}"
    elif meant := did_you_mean(name, there):
        yield f"no profile is named {name!r}{meant}"


def _of_affinity(view: SchedulerState, pod_class: PodClass) -> Iterator[str]:
    """Yields unknown fields of the annotation, and a Reservation that does not exist."""
    affinity = wish_of(pod_class).affinity
    if affinity is None:
        return
    known = ReservationAffinity.__struct_encode_fields__
    for field in _fields((pod_class.pod.metadata.annotations or {}).get(AFFINITY, "")):
        if field not in known:
            yield f"annotation {AFFINITY} has a field {field!r}, which has no effect{did_you_mean(field, known)}"
    there = view.objects.get(RESERVATIONS, {})
    if affinity.name and affinity.name not in there:
        meant = did_you_mean(affinity.name, there)
        yield f"annotation {AFFINITY} names Reservation {affinity.name!r}, which does not exist{meant}"


def _fields(text: str) -> list[str]:
    try:
        document = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeEncodeError):
        return []
    return list(document) if isinstance(document, dict) else []


def _of_gang(view: SchedulerState, rules: QueueRules, record: PodRecord) -> Iterator[str]:
    """Yields what is ignored of the gang's PodGroup; without one, of its other pods."""
    gang = view.gangs.gang_of.get(record.uid, "")
    if not gang or gang not in view.gangs.gangs:
        return
    source = "PodGroup" if view.gangs.gangs[gang].has_pod_group else "gang"
    for fault in ignored_settings(view, rules, gang):
        yield f"{source} {gang}: {fault}"
