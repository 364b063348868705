"""The active queue: pods to try now, in order, at a cost that does not depend on the number of their classes.

At equal priority and sub-priority, classes without a refused waiting pod come first: a class that fits on no node is
known after one pod, and its other pods delay no class. Each class has a list of its own, and the first pod of the
list represents the class among the others; so a class moves to the back, or to the front, at the cost of one entry.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush, heapreplace

from services.scheduler.state.pod_equivalence_class import PodClass

FRESH, REFUSED_BEFORE, REQUEUED = range(3)
"""Ranks: active, of a class without a refused waiting pod; active, of another class; requeued after an event."""

Order = tuple[int, int, int, int, str]
"""(-priority, -sub-priority, FRESH to REQUEUED, `since`, uid): the order in which pods are tried."""
Entry = tuple[Order, int]
"""(order, ticket)."""

_WORTH_A_CUT = 1024


class _Class:
    """The active pods of one class.

    Attributes:
        entries: in order, as if no pod were refused; entries before `start` are obsolete.
        shown: its newest entry among the heads; not later than its first pod.
    """

    __slots__ = ("entries", "number", "pod_class", "shown", "start")

    def __init__(self, pod_class: PodClass, number: int) -> None:
        self.pod_class = pod_class
        self.number = number
        self.entries: list[Entry] = []
        self.start = 0
        self.shown: Entry | None = None

    def place(self, begin: int, tickets: Mapping[str, int]) -> int:
        """Returns the place of the first pod from `begin` on; the end of the list when there is none."""
        entries, place = self.entries, begin
        while place < len(entries) and tickets.get(entries[place][0][-1]) != entries[place][1]:
            place += 1
        return place

    def begin(self, tickets: Mapping[str, int]) -> int:
        """Returns the place of the first pod; entries before it are dropped."""
        self.start = self.place(self.start, tickets)
        if self.start > _WORTH_A_CUT and 2 * self.start > len(self.entries):
            del self.entries[: self.start]
            self.start = 0
        return self.start


class ActiveQueue:
    """Active pods. An entry is valid while `tickets` (uid -> ticket) has its ticket."""

    def __init__(self, tickets: Mapping[str, int]) -> None:
        self._tickets = tickets
        self._classes: dict[PodClass, _Class] = {}
        self._refused: Counter[PodClass] = Counter()
        self._numbers = 0
        self._numbered: dict[int, _Class] = {}
        self._heads: list[tuple[Order, int, int]] = []  # with the class's number

    def push(self, pod_class: PodClass, sub_priority: int, since: int, uid: str, ticket: int) -> None:
        """Adds a pod; it stays until its ticket changes.

        Args:
            sub_priority: the same for all pods of a class.
        """
        class_ = self._classes.get(pod_class)
        if class_ is None:
            self._numbers += 1
            class_ = self._classes[pod_class] = self._numbered[self._numbers] = _Class(pod_class, self._numbers)
        entry, entries = ((-pod_class.priority, -sub_priority, FRESH, since, uid), ticket), class_.entries
        if len(entries) > class_.start and entries[-1] < entry:
            entries.append(entry)  # most pods arrive in order, behind one that represents the class already
            return
        insort(entries, entry, lo=class_.start)
        self._show(class_)

    def note_refused(self, pod_class: PodClass, by: int) -> None:
        """Changes the number of the class's waiting pods that were refused."""
        before = self._refused[pod_class]
        self._refused[pod_class] = before + by
        if not before + by:
            del self._refused[pod_class]
        if bool(before) != bool(before + by) and pod_class in self._classes:
            self._show(self._classes[pod_class])

    def in_order(self) -> Iterator[Entry]:
        """Yields all entries in order; the queue must not change while the iterator is in use."""
        self._settle_first()
        heads, tickets = self._heads.copy(), self._tickets
        at: dict[int, tuple[Entry | None, int]] = {}  # number of a class -> its next pod, and the place of that
        while heads:
            order, ticket, number = heads[0]
            class_, entry = self._numbered.get(number), (order, ticket)
            if class_ is None:
                heappop(heads)
                continue
            if number in at:
                if at[number][0] != entry:
                    heappop(heads)  # an older entry of the class
                    continue
                yield entry
                place = class_.place(at[number][1] + 1, tickets)
            elif class_.shown == entry:
                place = class_.begin(tickets)
                if place < len(class_.entries) and self._entry(class_, place) == entry:
                    yield entry
                    place = class_.place(place + 1, tickets)
            else:
                heappop(heads)
                continue
            following = self._entry(class_, place) if place < len(class_.entries) else None
            rival = min(heads[1:3], default=None)
            while following is not None and (rival is None or (*following, number) < rival):
                yield following  # of the same class, without a turn of the heap
                place = class_.place(place + 1, tickets)
                following = self._entry(class_, place) if place < len(class_.entries) else None
            at[number] = following, place
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (*following, number))

    def _settle_first(self) -> None:
        """Brings the first head up to date after the pods before it were tried."""
        while self._heads:
            order, ticket, number = self._heads[0]
            class_ = self._numbered.get(number)
            if class_ is None or class_.shown != (order, ticket):
                heappop(self._heads)
                continue
            place = class_.begin(self._tickets)
            if place < len(class_.entries) and self._entry(class_, place) == (order, ticket):
                return
            self._show(class_)

    def _show(self, class_: _Class) -> None:
        """Lets the class's first pod represent it; drops a class without pods."""
        place = class_.begin(self._tickets)
        if place == len(class_.entries):
            del self._classes[class_.pod_class], self._numbered[class_.number]
            return
        first = self._entry(class_, place)
        if first != class_.shown:
            class_.shown = first
            heappush(self._heads, (*first, class_.number))

    def _entry(self, class_: _Class, place: int) -> Entry:
        """Returns an entry with the present rank of its class."""
        entry = class_.entries[place]
        if class_.pod_class not in self._refused:
            return entry
        (priority, sub_priority, _, since, uid), ticket = entry
        return (priority, sub_priority, REFUSED_BEFORE, since, uid), ticket


def first_of(heap: list[Entry], tickets: Mapping[str, int]) -> Entry | None:
    """Returns the first valid entry; obsolete entries before it are dropped."""
    while heap and tickets.get(heap[0][0][-1]) != heap[0][1]:
        heappop(heap)
    return heap[0] if heap else None
