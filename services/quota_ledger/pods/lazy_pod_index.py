"""An index of pods that exists only while it is in use."""

from collections.abc import Callable, Iterable

SMALLEST = 1_000
"""Changes after which an unused index is dropped, at least."""


class LazyPodIndex:
    """Uids by a key such as the namespace.

    Looked up when quotas change or are explained, which is rare: built by one pass at a look-up, kept up to date, and
    dropped once as many changes as it holds pods went by without another look-up. So it costs nothing in a steady
    cluster, and at most one step for each change of a pod.
    """

    def __init__(self, pairs: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Takes a function that yields key and uid of every pod."""
        self._pairs = pairs
        self._groups: dict[str, dict[str, None]] | None = None
        self._unused = 0
        self._limit = 0

    def get(self, key: str) -> list[str]:
        """Returns the uids of a key, sorted."""
        groups = self._groups
        if groups is None:
            groups = self._groups = {}
            count = 0
            for each, uid in self._pairs():
                groups.setdefault(each, {})[uid] = None
                count += 1
            self._limit = max(count, SMALLEST)
        self._unused = 0
        return sorted(groups.get(key, ()))

    def add(self, key: str, uid: str) -> None:
        """Adds a pod."""
        if self._groups is not None:
            self._groups.setdefault(key, {})[uid] = None
            self._changed()

    def discard(self, key: str, uid: str) -> None:
        """Removes a pod."""
        if self._groups is not None and (group := self._groups.get(key)) is not None:
            group.pop(uid, None)
            if not group:
                del self._groups[key]
            self._changed()

    def _changed(self) -> None:
        self._unused += 1
        if self._unused > self._limit:
            self._groups = None
