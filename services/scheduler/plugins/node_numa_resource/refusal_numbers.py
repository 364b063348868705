"""Numbers for the refusals of a cycle: a filter result is an integer, and a refusal has reasons with text."""

from itertools import count
from weakref import WeakValueDictionary

from services.scheduler.plugins.node_numa_resource.pod_requirements import Rejection


class _Numbered:
    """A refusal under its number, for as long as a cycle refers to it."""

    __slots__ = ("__weakref__", "number", "rejection")

    def __init__(self, number: int, rejection: Rejection) -> None:
        self.number, self.rejection = number, rejection


class RefusalNumbers:
    """The refusals of all cycles and requests that are under way, by number.

    A number is never used twice, and a refusal is dropped with the cycles that met it. So neither memory nor what is recorded of a
    refusal depends on the age of the process, although the texts of users' annotations are among the reasons.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._refusals: WeakValueDictionary[int, _Numbered] = WeakValueDictionary()

    def __getitem__(self, number: int) -> Rejection:
        return self._refusals[number].rejection

    def new(self, rejection: Rejection) -> _Numbered:
        """Numbers a refusal; the caller keeps the result for as long as the number is in use."""
        numbered = _Numbered(next(self._numbers), rejection)
        self._refusals[numbered.number] = numbered
        return numbered


class CycleRefusals:
    """The refusals that one cycle has met; a plugin state and its copies share them."""

    def __init__(self, numbers: RefusalNumbers) -> None:
        self._numbers = numbers
        self._met: dict[Rejection, _Numbered] = {}

    def number(self, rejection: Rejection | None) -> int:
        """The filter result that stands for a refusal; 0 for none."""
        if rejection is None:
            return 0
        found = self._met.get(rejection)
        if found is None:
            found = self._met[rejection] = self._numbers.new(rejection)
        return found.number
