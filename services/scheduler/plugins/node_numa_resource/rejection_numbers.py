"""Numbers for the rejections of a cycle: a filter result is an integer, and a rejection has reasons with text."""

from itertools import count
from weakref import WeakValueDictionary

from services.scheduler.plugins.node_numa_resource.pod_requirements import Rejection


class _Numbered:
    """A rejection with its number, for as long as a cycle refers to it."""

    __slots__ = ("__weakref__", "number", "rejection")

    def __init__(self, number: int, rejection: Rejection) -> None:
        self.number, self.rejection = number, rejection


class RejectionNumbers:
    """The rejections of all running cycles and requests, by number.

    A number is never used twice, and a rejection is dropped with the cycles that refer to it. So neither memory nor the
    record of a rejection depends on the age of the process, although texts of users' annotations are among the reasons.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._rejections: WeakValueDictionary[int, _Numbered] = WeakValueDictionary()

    def __getitem__(self, number: int) -> Rejection:
        return self._rejections[number].rejection

    def new(self, rejection: Rejection) -> _Numbered:
        """Numbers a rejection; the caller keeps the result for as long as the number is in use."""
        numbered = _Numbered(next(self._numbers), rejection)
        self._rejections[numbered.number] = numbered
        return numbered


class CycleRejections:
    """The rejections of one cycle; a plugin state and its copies share them."""

    def __init__(self, numbers: RejectionNumbers) -> None:
        self._numbers = numbers
        self._met: dict[Rejection, _Numbered] = {}

    def number(self, rejection: Rejection | None) -> int:
        """The filter result of a rejection; 0 for none."""
        if rejection is None:
            return 0
        found = self._met.get(rejection)
        if found is None:
            found = self._met[rejection] = self._numbers.new(rejection)
        return found.number
