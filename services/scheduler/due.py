"""The pods that have to be tried, in order, whatever the number of classes they are of.

Of equal priority, classes of which no waiting pod has been refused come first: a class that fits nowhere has shown it with one pod, and
its others delay nobody. Each class has a heap of its own, of which the first pod stands for the class among the others; so a class moves
to the back, or to the front, at the cost of one entry.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush

from services.scheduler.ask import PodAsk

FRESH, REFUSED_BEFORE, WOKEN = range(3)
"""Due, of a class of which no waiting pod has been refused; due, of another; woken by a change."""

Order = tuple[int, int, int, str]
"""(-priority, FRESH to WOKEN, `since`, uid): the order in which pods are tried."""
Entry = tuple[Order, int]
"""(order, ticket)."""


class _Class:
    """The due pods of one class.

    Attributes:
        shown: its newest entry among the heads; not later than its first pod.
    """

    __slots__ = ("heap", "number", "shown")

    def __init__(self, number: int) -> None:
        self.number = number
        self.heap: list[Entry] = []
        self.shown: Entry | None = None


class Due:
    """Due pods; `tickets` (uid -> ticket) tells which entries hold."""

    def __init__(self, tickets: Mapping[str, int]) -> None:
        self._tickets = tickets
        self._classes: dict[PodAsk, _Class] = {}
        self._refused: Counter[PodAsk] = Counter()
        self._numbers = 0
        self._numbered: dict[int, PodAsk] = {}
        self._heads: list[tuple[Order, int, int]] = []  # with the class's number
        self._taken: list[tuple[PodAsk, Entry]] = []

    def push(self, ask: PodAsk, since: int, uid: str, ticket: int) -> None:
        """The pod has to be tried from now on, until its ticket is another."""
        class_ = self._class(ask)
        heappush(class_.heap, ((-ask.priority, FRESH, since, uid), ticket))
        self._show(ask, class_)

    def note_refused(self, ask: PodAsk, by: int) -> None:
        """So many more of the class's waiting pods have been refused."""
        before = self._refused[ask]
        self._refused[ask] = before + by
        if not before + by:
            del self._refused[ask]
        if bool(before) != bool(before + by) and ask in self._classes:
            self._show(ask, self._classes[ask])

    def head(self) -> Entry | None:
        """The first of all."""
        while self._heads:
            order, ticket, number = self._heads[0]
            ask = self._numbered.get(number)
            class_ = self._classes[ask] if ask is not None else None
            if ask is None or class_ is None or class_.shown != (order, ticket):
                heappop(self._heads)
            elif self._first(ask, class_) == (order, ticket):
                return order, ticket
            else:
                self._show(ask, class_)
        return None

    def take(self) -> None:
        """Take the first out, until `put_back`."""
        ask = self._numbered[self._heads[0][2]]
        class_ = self._classes[ask]
        self._taken.append((ask, heappop(class_.heap)))
        self._show(ask, class_)

    def put_back(self) -> None:
        """Put back what was taken out."""
        for ask, entry in self._taken:
            heappush(self._class(ask).heap, entry)
        for ask in dict.fromkeys(ask for ask, _ in self._taken):
            self._show(ask, self._classes[ask])
        self._taken.clear()

    def _class(self, ask: PodAsk) -> _Class:
        class_ = self._classes.get(ask)
        if class_ is None:
            self._numbers += 1
            self._numbered[self._numbers] = ask
            class_ = self._classes[ask] = _Class(self._numbers)
        return class_

    def _show(self, ask: PodAsk, class_: _Class) -> None:
        """Have the class's first pod stand for it; drop a class that has none."""
        first = self._first(ask, class_)
        if first is None:
            del self._classes[ask], self._numbered[class_.number]
        elif first != class_.shown:
            class_.shown = first
            heappush(self._heads, (*first, class_.number))

    def _first(self, ask: PodAsk, class_: _Class) -> Entry | None:
        found = first_of(class_.heap, self._tickets)
        if found is None:
            return None
        (priority, _, since, uid), ticket = found
        return (priority, REFUSED_BEFORE if ask in self._refused else FRESH, since, uid), ticket


def first_of(heap: list[Entry], tickets: Mapping[str, int]) -> Entry | None:
    """The first entry that is its pod's newest; what is before it is dropped."""
    while heap and tickets.get(heap[0][0][3]) != heap[0][1]:
        heappop(heap)
    return heap[0] if heap else None
