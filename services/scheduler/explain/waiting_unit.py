"""The pods of a unit that waits for nodes: of a gang that is tried as a whole, or one pod."""

from collections.abc import Sequence

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.gang_status import WAITING, GangStatus, gang_status
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.closest_name import did_you_mean
from shared.errors import KoordError


class NothingWaits(KoordError):
    """No waiting pod and no waiting gang has the name."""

    def __init__(self, name: str, waiting: Sequence[str], why: str = "") -> None:
        count = f"{len(waiting)} pod{' waits' if len(waiting) == 1 else 's wait'}"
        there = f"{count}: `koord pending -A`" if waiting else "no pod waits"
        super().__init__(f"no waiting pod or gang {name!r}{did_you_mean(name, waiting)}{why}; {there}")


class NoGangToPlan(KoordError):
    """A gang is not tried as a whole, so no capacity is sought for it."""

    def __init__(self, gang: GangStatus) -> None:
        why = f": {gang.lacks}" if gang.lacks else ""
        super().__init__(f"gang {gang.name} is {gang.state}{why}; `koord why gang {gang.name}` has its pods")


def waiting_unit(cache: CycleInputs, name: str) -> tuple[PodRecord, ...]:
    """Returns the waiting pods of a gang, or the one pod of this name, from a settled cache.

    Raises:
        NothingWaits: there are none.
        NoGangToPlan: the gang lacks pods, or needs no more.
    """
    group = next((each for each in cache.queue.groups() if each.key == name), None)
    if group is not None and (pods := cache.queue.pods_of(group)):
        return pods
    waiting = [each for each in cache.view.pods.values() if each.since and not each.node and not each.ended]
    found = [each for each in waiting if each.name == name]
    if not found:
        gang = gang_status(cache.view, rules_in_force(cache.view), name)
        if gang is not None and gang.state != WAITING:
            raise NoGangToPlan(gang)
        running = next((each.node for each in cache.view.pods.values() if each.name == name and each.node), "")
        names = sorted(each.name for each in waiting if each.pod_class is None or not each.pod_class.reserves)
        raise NothingWaits(name, names, f", which runs on {running}" if running else "")
    pod = found[0]
    if pod.pod_class is None or pod.pod_class.fault or pod.pod_class.scheduler not in cache.profiles:
        raise NothingWaits(name, (), " that this scheduler places: koord why pod says what is wrong with it")
    return (pod,)
