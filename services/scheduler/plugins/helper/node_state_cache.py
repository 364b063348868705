"""Base class of caches in which a node's state follows from what it offers and from the allocations of its pods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.helper.equivalent_states import Numbered
from services.scheduler.state.pod_scheduling_record import Assignment

Allocation = TypeVar("Allocation")
Held = TypeVar("Held")
State = TypeVar("State", bound=Numbered)
_Scalar = TypeVar("_Scalar", bound=np.generic)


class NodeStateCache(PluginCache, ABC, Generic[Allocation, Held, State]):
    """States of nodes by row; `Held` is what is kept of a pod's allocation."""

    def __init__(self) -> None:
        self._pods: dict[int, dict[str, Held]] = {}
        self._states: dict[int, State] = {}
        self._numbers: Int64 = np.zeros(0, np.int64)  # of the state by row; 0: not computed

    @abstractmethod
    def allocations(self, row: int) -> list[Allocation]:
        """Returns the allocations of the pods of a node, in the order in which they count."""

    @abstractmethod
    def after(self, row: int, state: State, allocation: Allocation, more: Sequence[Allocation] = ()) -> State:
        """Returns the state with one more allocation, where `state` contains those of the node's pods and `more`."""

    @abstractmethod
    def _of(self, row: int, allocations: Iterable[Allocation]) -> State:
        """Returns the state of a node with these allocations."""

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (it is known by its uid)
        """Counts the pod's allocation no longer."""
        pods = self._pods.get(row, {})
        if pods.pop(uid, None) is not None:
            self._drop_state(row)
            if not pods:
                del self._pods[row]

    def state(self, row: int, more: Sequence[Allocation] = (), gone: Iterable[Allocation] = ()) -> State:
        """Returns the state of a node, with more allocations of the cycle and without those of removed pods."""
        left = list(gone)
        if left:
            allocated = self.allocations(row)
            for allocation in left:
                allocated.remove(allocation)
            return self._of(row, [*allocated, *more])
        state = self._states.get(row)
        if state is None:
            state = self._states[row] = self._of(row, self.allocations(row))
        for number, allocation in enumerate(more):
            state = self.after(row, state, allocation, more[:number])
        return state

    def state_numbers(self, rows: Int64) -> Int64:
        """int64[all rows]: the numbers of the nodes' states, valid in these rows."""
        numbers = self._numbers
        for row in rows[numbers[rows] == 0].tolist():
            numbers[row] = self.state(row).number
        return numbers

    def _drop_state(self, row: int) -> None:
        self._states.pop(row, None)
        self._reach(row + 1)
        self._numbers[row] = 0

    def _reach(self, size: int) -> None:
        """Lengthens the arrays to so many rows at least."""
        if size > len(self._numbers):
            self._numbers = longer(self._numbers, 2 * size)


def longer(array: NDArray[_Scalar], size: int) -> NDArray[_Scalar]:
    """Returns the array with zeros up to so many rows."""
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
