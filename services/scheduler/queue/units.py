"""Units: pods that a cycle places as a whole or not at all, and the order in which it tries them.

A unit is one pod, unless a plugin of its profile declares `groups_pods` and names a group for the pod: then it is the
waiting pods of the group, of which the plugin requires a number.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from services.scheduler.framework.gang_grouping_interface import ALONE, Membership, PodGrouping, Requirement
from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE, Order
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

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
        requirement: of a unit of several pods.
    """

    pods: tuple[PodRecord, ...]
    due: bool
    order: Order
    group: "Group | None" = None
    requirement: Requirement | None = None


class Group(NamedTuple):
    """Key of a unit of several pods.

    Attributes:
        plugin: name of the plugin that groups the pods.
        key: the group, as the plugin names it.
    """

    scheduler: str
    plugin: str
    key: str


Groupings = Mapping[str, Mapping[str, PodGrouping]]
"""schedulerName -> plugin -> its grouping, in the order of the profile; without profiles that group no pod."""


class Grouped(NamedTuple):
    """The group of a pod, and its membership there."""

    group: Group | None
    membership: Membership


UNGROUPED = Grouped(None, ALONE)


class Groups:
    """The waiting pods of each group."""

    def __init__(self, groupings: Groupings) -> None:
        self._groupings = groupings
        self._in_order = {scheduler: tuple(plugins.items()) for scheduler, plugins in groupings.items()}
        self._members: dict[Group, dict[str, None]] = {}
        self._group_of: dict[str, Group] = {}

    def __bool__(self) -> bool:
        """Returns False while every waiting pod is a unit of its own."""
        return bool(self._members)

    def find(self, pod_record: PodRecord) -> Grouped:
        """Returns the present group of a waiting pod: that of the first plugin that groups it or holds it back."""
        pod_class = pod_record.pod_class
        if pod_class is None:
            return UNGROUPED
        for plugin, grouping in self._in_order.get(pod_class.scheduler, ()):
            membership = grouping.of(pod_record)
            if membership.group:
                return Grouped(Group(pod_class.scheduler, plugin, membership.group), membership)
            if membership is not ALONE:
                return Grouped(None, membership)
        return UNGROUPED

    def enter(self, uid: str, group: Group | None) -> None:
        """Adds a waiting pod, or changes its group."""
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

    def groups(self) -> Iterable[Group]:
        """Returns the groups with a waiting pod."""
        return self._members.keys()

    def of(self, uid: str) -> Group | None:
        """Returns the group of a waiting pod."""
        return self._group_of.get(uid)

    def members(self, group: Group) -> Collection[str]:
        """Returns the uids of the waiting pods of a group."""
        return self._members.get(group, {}).keys()

    def restricts_one(self, group: Group) -> bool:
        """Returns True where a single pod of the group is not placed like any pod: nodes are held for others, or it
        gathers in network domains.
        """
        grouping = self._groupings[group.scheduler][group.plugin]
        return grouping.gathers(group.key) or bool(grouping.held(group.key))

    def requirement(self, group: Group, pods: Sequence[PodRecord]) -> Requirement | None:
        """Returns the number of pods that a unit needs; None where it has too few."""
        requirement = self._groupings[group.scheduler][group.plugin].requirement(group.key, pods)
        there = Counter(requirement.part_of.get(pod.uid, "") for pod in pods)
        return requirement if all(there[part] >= count for part, count in requirement.needed.items()) else None


def class_of(pod: PodRecord) -> PodClass:
    """Returns the class of a pod that waits in the queue."""
    assert pod.pod_class is not None, "only pods that have been read are queued"
    return pod.pod_class


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
