"""Units: pods that a cycle places as a whole or not at all, and the order in which it tries them.

A unit is one pod, unless a plugin of its profile declares `groups_pods` and names a group for the pod: then it is all
waiting pods of the group.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from services.scheduler.framework.profile import Profile
from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE, Order
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_record import PodRecord

Turn = tuple[int, bool, int, int, int, str]
"""(-priority, False for a nominated pod, -sub-priority, rank in the active queue, `since`, uid)."""


class Unit(NamedTuple):
    """Pods that are placed as a whole or not at all.

    Attributes:
        pods: in the order in which they are placed; mostly one.
        due: it must be tried. Otherwise an event may have ended its reasons; when another pod of its class is refused
            in the same cycle, the event has not.
        order: its order among units that are nominated alike.
        group: of a unit of several pods.
    """

    pods: tuple[PodRecord, ...]
    due: bool
    order: Order
    group: "Group | None" = None


class Group(NamedTuple):
    """Key of a unit of several pods.

    Attributes:
        plugin: name of the plugin that groups the pods.
        key: the group, as the plugin names it.
    """

    scheduler: str
    plugin: str
    key: str


class Groups:
    """The waiting pods of each group."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._grouping = {name: profile.grouping for name, profile in profiles.items() if profile.grouping}
        self._members: dict[Group, dict[str, None]] = {}
        self._group_of: dict[str, Group] = {}

    def __bool__(self) -> bool:
        """Returns False while every waiting pod is a unit of its own."""
        return bool(self._members)

    def of_class(self, pod_class: PodClass) -> Group | None:
        """Returns the group of the pods of a class; None where each is a unit of its own."""
        for plugin in self._grouping.get(pod_class.scheduler, ()):
            if key := plugin.unit_of(pod_class):
                return Group(pod_class.scheduler, plugin.name, key)
        return None

    def enter(self, uid: str, pod_class: PodClass) -> None:
        """Adds a waiting pod, or changes its group."""
        group = self.of_class(pod_class) if self._grouping else None
        if self._group_of.get(uid) != group:
            self.leave(uid)
            if group is not None:
                self._group_of[uid] = group
                self._members.setdefault(group, {})[uid] = None

    def leave(self, uid: str) -> None:
        """Removes a pod that no longer waits."""
        group = self._group_of.pop(uid, None)
        if group is not None:
            del self._members[group][uid]
            if not self._members[group]:
                del self._members[group]

    def of(self, uid: str) -> Group | None:
        """Returns the group of a waiting pod."""
        return self._group_of.get(uid)

    def members(self, group: Group) -> Collection[str]:
        """Returns the uids of the waiting pods of a group."""
        return self._members[group].keys()


def turn(unit: Unit) -> Turn:
    """Returns a unit's turn: of equal priority, nominated pods come first, since their victims are evicted for them."""
    priority, sub_priority, rank, since, uid = unit.order
    return priority, not unit.pods[0].nominated, sub_priority, rank, since, uid


def in_turn(line: Sequence[Unit], has_refused: Callable[[Unit], bool]) -> Iterator[Unit]:
    """Yields units in the order in which cycles of one unit each would try them.

    Units with a class that this cycle has refused move behind those that it has not refused.

    Args:
        line: sorted by `turn`.
        has_refused: returns True once the cycle has refused a pod of the class of one of the unit's pods.
    """
    back: list[tuple[Turn, int]] = []  # put back, by their new turn
    for number, each in enumerate(line):
        while back and back[0][0] < turn(each):
            yield line[heappop(back)[1]]
        if each.order[2] == FRESH and has_refused(each):
            priority, later, sub_priority, _, since, uid = turn(each)
            heappush(back, ((priority, later, sub_priority, REFUSED_BEFORE, since, uid), number))
        else:
            yield each
    while back:
        yield line[heappop(back)[1]]
