"""The end of gangs that lost a member and cannot go on: the others are evicted too.

    a member was evicted for another service or a node agent   always
    a member failed for good                                   where the failure policy of its group is `Evict`

In both cases only where fewer than the minimum of its gang are left. A gang is ended as a whole, with the gangs of its
group. Members that were created after the loss are its next start and stay. The scheduler's own victims are chosen by
gangs already (`framework/gang_members_as_victims.py`).
"""

from collections.abc import Iterable, Iterator

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.gang_members_as_victims import holds_a_place, running_members
from services.scheduler.state.gang_records import GangLoss
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import Cause, Draft
from shared.events.intents import EvictionRequested
from shared.events.scheduling import GangEvictionDecided
from shared.kube.instants import SECOND

MAX_AGE_NS = 600 * SECOND
"""An older loss ends no gang: whoever has kept the others since then wants them. After a part of the history was dropped
it may also appear as one although more members were left.
"""


def gang_eviction_drafts(cache: CycleInputs, changed: Iterable[str], now_ns: int) -> tuple[Draft, ...]:
    """Returns the evictions of the other members of those of these gangs that cannot go on."""
    gangs = cache.view.gangs.gangs
    return tuple(
        draft
        for gang in sorted(changed)
        if gang in gangs and (loss := gangs[gang].loss) is not None and now_ns - loss.at_ns <= MAX_AGE_NS
        for draft in _evictions(cache, gang, loss)
    )


def _evictions(cache: CycleInputs, gang: str, loss: GangLoss) -> Iterator[Draft]:
    view = cache.view
    settings = view.gangs.gangs[gang].settings
    pods = sorted(
        (pod for other in view.gangs.group_of(gang) for pod in _to_evict(cache, other, loss)),
        key=lambda pod: (pod.name, pod.uid),
    )
    if settings is None or not pods:
        return
    lost = view.pods[loss.pod_uid].name if loss.pod_uid in view.pods else loss.pod_uid
    cause = Cause("cluster", loss.seq)
    yield Draft(
        GangEvictionDecided(
            gang=gang,
            lost=lost,
            lost_uid=loss.pod_uid,
            how=loss.how,
            left=loss.left,
            minimum=settings.minimum,
            pods=tuple(pod.name for pod in pods),
        ),
        cause,
    )
    how = "was evicted" if loss.how == "evicted" else "failed"
    reason = f"gang {gang} has {loss.left} of {settings.minimum} pods left since {lost} {how}"
    for pod in pods:
        yield Draft(EvictionRequested(pod_uid=pod.uid, pod=pod.name, reason=reason), cause, pod.uid)


def _to_evict(cache: CycleInputs, gang: str, loss: GangLoss) -> Iterator[PodRecord]:
    """Yields the members that ran when the loss occurred, and whose eviction was not refused since."""
    for uid in running_members(cache.view, gang):
        pod = cache.view.pods[uid]
        is_ours = pod.pod_class is not None and pod.pod_class.scheduler in cache.groupings
        if is_ours and not holds_a_place(pod) and pod.since < loss.seq and pod.eviction_refused_at < loss.seq:
            yield pod
