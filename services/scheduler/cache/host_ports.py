"""Host ports in use within a cycle: the node table's counts, copied row by row when the cycle first changes a row.

A cycle places pods with host ports on few nodes, while every node may run such pods: the daemons.
"""

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping

from services.scheduler.state.pod_equivalence_class import HostPort

PortCounts = Mapping[HostPort, int]
"""Host port -> number of pods that use it, above 0."""


class HostPorts:
    """Host ports in use by row, over counts that are not written to and do not change meanwhile."""

    def __init__(self, before: Mapping[int, PortCounts]) -> None:
        """Begins with these counts, by row; nothing is copied."""
        self._before = before
        self._changed: dict[int, dict[HostPort, int]] = {}

    def __bool__(self) -> bool:
        """Returns False where no row has ever had a port in use."""
        return bool(self._before or self._changed)

    def on(self, row: int) -> Collection[HostPort]:
        """Returns the ports in use on a row."""
        changed = self._changed.get(row)
        return self._before.get(row, ()) if changed is None else changed

    def items(self) -> Iterable[tuple[int, Collection[HostPort]]]:
        """Returns (row, ports in use) of every row that has or had one."""
        return self._with_changes() if self._changed else ItemsView(self._before)

    def count(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
        """Counts a pod with these ports on a row (+1), or removes it (-1)."""
        counts = self._changed.get(row)
        if counts is None:
            counts = self._changed[row] = dict(self._before.get(row, {}))
        count_ports(counts, ports, sign)
        if not counts and row not in self._before:
            del self._changed[row]

    def _with_changes(self) -> Iterator[tuple[int, Collection[HostPort]]]:
        for row, counts in self._before.items():
            yield row, self._changed.get(row, counts)
        yield from ((row, counts) for row, counts in self._changed.items() if row not in self._before)


def count_ports(counts: dict[HostPort, int], ports: Iterable[HostPort], sign: int) -> None:
    """Counts a pod with these ports among those of a node (+1), or removes it (-1); a port without a user is
    left out.
    """
    for port in ports:
        counts[port] = counts.get(port, 0) + sign
        if not counts[port]:
            del counts[port]
