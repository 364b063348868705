"""Rows that a cycle has changed, for the evaluations that follow it."""

from collections.abc import Sequence
from typing import NamedTuple

from services.scheduler.state.pod_equivalence_class import PodClass


class RowChange(NamedTuple):
    """A change of one node.

    Attributes:
        pod_class: of the pod; None where capacity changed.
        predicted: a pod of the class was placed, and changed the node as `predict_evaluation` predicted for its class.
        releases: the change may make the node feasible for other pods: a removal, other capacity,
            or the undoing of a step.
    """

    row: int
    pod_class: PodClass | None
    predicted: bool
    releases: bool = False


class RowChanges:
    """The changes of a cycle, oldest first.

    Attributes:
        entries: all of them.
        read: number of those that an evaluation may contain.
        undone: number of times that steps were undone.
        resets: number of times that results of all rows may have changed.
    """

    def __init__(self) -> None:
        self.entries: list[RowChange] = []
        self.read = 0
        self.undone = 0
        self.resets = 0

    def since(self, upto: int) -> Sequence[RowChange]:
        """Returns the changes behind the first `upto`; from now on an evaluation contains all of them."""
        self.read = len(self.entries)
        return self.entries[upto:]

    def undo(self, first: int, changes: int) -> None:
        """Undoes a step, the last one that is not undone.

        Changes that no evaluation contains are dropped, so that trying and undoing costs nothing afterwards. The rows
        of others have to be evaluated again.

        Args:
            first: place of the step's first change.
            changes: number of its changes.
        """
        if first >= self.read:
            # The changes of later steps were dropped before: these are the last ones.
            del self.entries[first:]
        else:
            undone = self.entries[first : first + changes]
            self.entries += [RowChange(row, pod_class, predicted=False, releases=True) for row, pod_class, *_ in undone]
