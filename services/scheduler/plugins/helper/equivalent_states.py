"""States that nodes are in, one object for all nodes in the same one, and the last ones that nodes were in.

A result that depends on the state and the class alone is computed once for a (state, class), not once for a node. Nodes
of one model that fill up with equal pods pass through the same states.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary


class Numbered(Protocol):
    """A state. Its number identifies it within its EquivalentStates; it is positive, and never used again."""

    number: int


State = TypeVar("State", bound=Numbered)


class _Transition(NamedTuple):
    """A change of state. It refers to the allocation, of which the key may have nothing but the id."""

    allocation: object
    after: Any


class EquivalentStates(Generic[State]):
    """The states by their keys."""

    def __init__(self, max_unused: int, max_transitions: int) -> None:
        """Begins without any.

        Args:
            max_unused: number of states kept beyond those that a node is in: the next node to fill up often enters one
                of them.
            max_transitions: number of (state, one more allocation) of which the next state is kept.
        """
        self._max_unused, self._max_transitions = max_unused, max_transitions
        # A state that no node and no cycle refers to is dropped, so their number is bounded by that of the nodes.
        self._by_key: WeakValueDictionary[Hashable, State] = WeakValueDictionary()
        self._latest: OrderedDict[int, State] = OrderedDict()
        self._numbers = count(1)
        self._transitions: OrderedDict[tuple[int, Hashable], _Transition] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[int], State]) -> State:
        """Returns the state with a key; `make` gets the number of a new one."""
        state = self._by_key.get(key)
        if state is None:
            state = self._by_key[key] = make(next(self._numbers))
        self._latest[state.number] = state
        self._latest.move_to_end(state.number)
        if len(self._latest) > self._max_unused:
            self._latest.popitem(last=False)
        return state

    def after(self, state: State, key: Hashable, allocation: object, find: Callable[[], State]) -> State:
        """Returns the state with one more allocation.

        Args:
            key: of the allocation.
            find: returns that state, where the change is not known yet.
        """
        place = state.number, key
        known = self._transitions.get(place)
        if known is None:
            known = self._transitions[place] = _Transition(allocation, find())
            if len(self._transitions) > self._max_transitions:
                self._transitions.popitem(last=False)
        else:
            self._transitions.move_to_end(place)
        found: State = known.after
        return found
