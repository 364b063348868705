"""Pods that a cycle has placed and removed, counted by each class of a cross-node plugin when it is read next."""

from abc import ABC, abstractmethod

from services.scheduler.state.pod_class import PodClass

PodMove = tuple[PodClass, int, int]
"""(class, row, +1 for a pod more, -1 for a pod less)."""


class MoveCounter(ABC):
    """Counts for one class.

    Attributes:
        upto: number of moves that are counted; within `count` and `undo_count`, of those before that one.
    """

    upto: int

    def __init__(self) -> None:
        self.upto = 0

    @abstractmethod
    def count(self, move: PodMove) -> None:
        """Counts the next move."""

    @abstractmethod
    def undo_count(self, move: PodMove) -> None:
        """Undoes the last `count` that is not undone yet."""


class PodMoves:
    """The moves of a cycle, oldest first.

    A move that is undone is removed from the list, and from the counts of the classes that have counted it: to the
    others it has never happened, so trying and undoing costs them nothing.

    Attributes:
        moves: those that are not undone.
    """

    def __init__(self) -> None:
        self.moves: list[PodMove] = []
        self._counters: dict[int, set[MoveCounter]] = {}  # `upto`, above 0 -> the counters that are there

    def __bool__(self) -> bool:
        """Returns True while there are moves."""
        return bool(self.moves)

    def catch_up(self, counter: MoveCounter) -> None:
        """Counts the moves since the counter's last call."""
        moves, counters, upto = self.moves, self._counters, counter.upto
        if upto:
            counters[upto].remove(counter)
            if not counters[upto]:
                del counters[upto]
        for place in range(upto, len(moves)):
            counter.upto = place
            counter.count(moves[place])
        counter.upto = len(moves)
        counters.setdefault(len(moves), set()).add(counter)

    def undo(self) -> None:
        """Undoes the last move."""
        counters = self._counters.pop(len(self.moves), None)
        move = self.moves.pop()
        if counters is None:
            return
        for counter in counters:
            counter.upto -= 1
            counter.undo_count(move)
        if self.moves:
            self._counters.setdefault(len(self.moves), set()).update(counters)
