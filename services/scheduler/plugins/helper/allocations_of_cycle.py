"""The allocations that a cycle makes and releases on nodes, on top of those of the placed pods, and the nodes' states
with them.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

from services.scheduler.plugins.helper.equivalent_states import Numbered
from services.scheduler.plugins.helper.node_state_cache import NodeStateCache

Allocation = TypeVar("Allocation")
State = TypeVar("State", bound=Numbered)


class AllocationsOfCycle(Generic[Allocation, State]):
    """The allocations of one cycle, by row."""

    def __init__(self, cache: NodeStateCache[Allocation, Any, State]) -> None:
        """Begins without any, on the states of a cache."""
        self._node_states = cache
        self._more: dict[int, list[Allocation]] = {}
        self._gone: dict[int, list[Allocation]] = {}
        self._back: dict[int, list[Allocation]] = {}
        self._changed: dict[int, State] = {}  # states of rows of these three

    def assume(self, row: int, allocation: Allocation) -> None:
        """Counts an allocation."""
        more = self._more.setdefault(row, [])
        before = self._changed.pop(row, None)
        if before is not None and row not in self._gone and row not in self._back:
            self._changed[row] = self._node_states.after(row, before, allocation, more)
        more.append(allocation)

    def undo_assume(self, row: int) -> None:
        """Counts the last allocation no longer."""
        self._more[row].pop()
        if not self._more[row]:
            del self._more[row]
        self._changed.pop(row, None)

    def release(self, row: int, allocation: Allocation, sign: int) -> None:
        """Frees an allocation of a placed pod (-1), or counts it again (+1).

        That of a Reservation may have changed since it was lifted: it comes back with less.
        """
        ends, begins = (self._gone, self._back) if sign > 0 else (self._back, self._gone)
        if allocation in (there := ends.get(row, [])):
            there.remove(allocation)
            if not there:
                del ends[row]
        else:
            begins.setdefault(row, []).append(allocation)
        self._changed.pop(row, None)

    def rows(self) -> AbstractSet[int]:
        """Returns the rows with such an allocation."""
        return self._more.keys() | self._gone.keys() | self._back.keys()

    def state_with(self, row: int, others: Sequence[Allocation]) -> State:
        """Returns the state of the node with others' allocations as well."""
        back = self._back.get(row, ())
        return self._node_states.state(row, [*back, *self._more.get(row, ()), *others], self._gone.get(row, ()))

    def state(self, row: int) -> State:
        """Returns the state of the node."""
        state = self._changed.get(row)
        if state is not None:
            return state
        if row not in self._more and row not in self._gone and row not in self._back:
            return self._node_states.state(row)
        state = self._changed[row] = self.state_with(row, ())
        return state
