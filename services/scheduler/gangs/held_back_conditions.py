"""The conditions of pods that are held back: no cycle tries them, since their gang lacks pods or its PodGroup.

kube-scheduler tries such a pod and writes PodScheduled=False with the reason, which `kubectl describe pod` shows. Here
the reason is written once a gang has been held back for `WAIT_NS`, so that members which are created one after the
other cost no writes. As for pods that cycles refuse, another text of the same code is not worth a write.
"""

from collections.abc import Iterable, Iterator

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.reasons import Reason
from services.scheduler.state.ignored_pod_settings import ignored_settings_of
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import Cause, Draft
from shared.events.scheduling import PodUnschedulable
from shared.kube.instants import SECOND

WAIT_NS = 3 * SECOND


class HeldBackConditions:
    """The gangs that are held back since a moment, and whose pods lack the condition."""

    def __init__(self) -> None:
        self._since_ns: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Returns True while one waits."""
        return bool(self._since_ns)

    def take(self, cache: CycleInputs, changed: Iterable[str], now_ns: int) -> tuple[Draft, ...]:
        """Adds gangs that changed; returns the conditions of the pods of those that have been held back long enough."""
        for gang in changed:
            if next(_held_back(cache, gang), None) is None:
                self._since_ns.pop(gang, None)
            else:
                self._since_ns.setdefault(gang, now_ns)
        # A clock may be set back, so that the first change lies ahead.
        over = [gang for gang, since_ns in self._since_ns.items() if not since_ns <= now_ns < since_ns + WAIT_NS]
        drafts: list[Draft] = []
        for gang in over:
            del self._since_ns[gang]
            drafts += [_condition(cache, pod, reason) for pod, reason in _held_back(cache, gang)]
        return tuple(drafts)


def _held_back(cache: CycleInputs, gang: str) -> Iterator[tuple[PodRecord, Reason]]:
    """Yields the pods of a gang that are held back and whose condition has another code, by name."""
    record = cache.view.gangs.gangs.get(gang)
    if record is None:
        return
    for pod in sorted((cache.view.pods[uid] for uid in record.members), key=lambda each: (each.name, each.uid)):
        if pod.pod_class is None or not pod.waiting(cache.view.gateway_since):
            continue
        reason = cache.queue.grouped(pod).membership.held_back
        if reason is not None and reason.code != pod.condition_code:
            yield pod, reason


def _condition(cache: CycleInputs, pod: PodRecord, reason: Reason) -> Draft:
    assert pod.pod_class is not None, "only pods that have been read are held back"
    texts = cache.profiles[pod.pod_class.scheduler].texts
    event = PodUnschedulable(
        pod_uid=pod.uid,
        pod=pod.name,
        cycle=cache.view.cycle,
        code=reason.code,
        message=texts.text(reason.code, reason.detail),
        attempt=0,
        ignored=ignored_settings_of(pod.pod_class),
    )
    return Draft(event, Cause("cluster", pod.since), pod.uid)
