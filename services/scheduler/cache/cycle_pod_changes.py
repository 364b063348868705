"""Pods that a cycle has placed and removed, counted by each class of a cross-node plugin when it is read next."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from services.scheduler.state.pod_equivalence_class import PodClass


class PodChange(NamedTuple):
    """A pod more on a node (+1), or one less (-1)."""

    pod_class: PodClass
    row: int
    sign: int
    terminating: bool = False


class PodChangeCounter(ABC):
    """Counts for one class.

    Attributes:
        upto: number of changes that are counted; within `count` and `undo_count`, of those before that one.
        concerned: class of changed pods -> whether its pods change a count, of the classes that were met so far.
    """

    upto: int
    concerned: dict[PodClass, bool]

    def __init__(self) -> None:
        self.upto = 0
        self.concerned = {}

    @abstractmethod
    def concerns(self, pod_class: PodClass) -> bool:
        """Reports whether pods of the class change a count."""

    @abstractmethod
    def count(self, change: PodChange) -> None:
        """Counts the next change by a class that concerns it."""

    @abstractmethod
    def undo_count(self, change: PodChange) -> None:
        """Undoes the last `count` that is not undone yet."""


class CyclePodChanges:
    """The changes of a cycle, oldest first.

    A change that is undone is removed from the list, and from the counts of the classes that have counted it: to the
    others it has never happened, so trying and undoing costs them nothing.

    Attributes:
        changes: those that are not undone.
    """

    def __init__(self) -> None:
        self.changes: list[PodChange] = []
        self._counters: dict[int, set[PodChangeCounter]] = {}  # `upto`, above 0 -> the counters that are there

    def catch_up(self, counter: PodChangeCounter) -> None:
        """Counts the changes since the counter's last call."""
        changes, counters, upto = self.changes, self._counters, counter.upto
        if upto:
            beside = counters[upto]
            if len(beside) > 1:
                beside.remove(counter)
            else:
                del counters[upto]
        concerned = counter.concerned
        for place in range(upto, len(changes)):  # most changes concern few classes, so no call is made for the others
            change = changes[place]
            is_concerned = concerned.get(change[0])
            if is_concerned is None:
                is_concerned = concerned[change[0]] = counter.concerns(change[0])
            if is_concerned:
                counter.upto = place
                counter.count(change)
        counter.upto = len(changes)
        there = counters.get(len(changes))
        if there is None:
            counters[len(changes)] = {counter}
        else:
            there.add(counter)

    def undo(self) -> None:
        """Undoes the last change."""
        counters = self._counters.pop(len(self.changes), None)
        change = self.changes.pop()
        if counters is None:
            return
        for counter in counters:
            counter.upto -= 1
            if counter.concerned[change.pod_class]:
                counter.undo_count(change)
        if self.changes:
            self._counters.setdefault(len(self.changes), set()).update(counters)
