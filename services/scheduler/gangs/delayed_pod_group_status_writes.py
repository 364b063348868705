"""The statuses of PodGroups wait until no gang is being bound, at most `LONGEST_WAIT_NS`.

A write costs the API server as much as two bindings, and is for people, and for controllers that wait for a job. While
a burst of gangs is bound, the status of each would change several times; of these only the last is written.
"""

from collections.abc import Iterable

from services.scheduler.state.scheduler_state import SchedulerState
from shared.kube.instants import SECOND

LONGEST_WAIT_NS = 5 * SECOND


class StatusesAfterBindings:
    """The gangs that changed since the statuses of PodGroups were last written."""

    def __init__(self) -> None:
        self._gangs: dict[str, None] = {}
        self._since_ns = 0
        self._was_binding = False

    def __bool__(self) -> bool:
        """Returns True while one waits."""
        return bool(self._gangs)

    def take(self, view: SchedulerState, changed: Iterable[str], now_ns: int) -> Iterable[str]:
        """Adds gangs that changed; returns those whose status is to be written now: all, or none."""
        if not self._gangs:
            self._since_ns = now_ns
        self._gangs.update(dict.fromkeys(changed))
        # Within a burst there are moments in which all that was placed is bound: it has ended after two of them.
        is_binding = any(_is_being_bound(view, gang) for gang in self._gangs)
        self._was_binding, waits = is_binding, is_binding or self._was_binding
        # A clock may be set back, so that the first change lies ahead.
        if waits and self._since_ns <= now_ns < self._since_ns + LONGEST_WAIT_NS:
            return ()
        taken, self._gangs = self._gangs, {}
        return taken


def _is_being_bound(view: SchedulerState, gang: str) -> bool:
    """Returns True for a gang with a member that is placed, not held on its node, and not observed there yet."""
    record = view.gangs.gangs.get(gang)
    if record is None:
        return False
    pods = (view.pods[uid] for uid, member in record.members.items() if not member.is_bound)
    return any(pod.is_placed() and pod.hold is None and not pod.ended for pod in pods)
