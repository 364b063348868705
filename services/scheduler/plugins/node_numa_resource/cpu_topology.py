"""The logical CPUs of a node by core, NUMA node and socket.

Source: spec/scheduler-core.md 4.2; upstream pkg/scheduler/plugins/nodenumaresource/cpu_topology.go.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Cpu(NamedTuple):
    """A logical CPU; `core` is unique over all sockets."""

    id: int
    core: int
    numa: int
    socket: int


class CpuTopology:
    """The CPUs of a node.

    Attributes:
        cpus: id -> CPU, ascending.
        cpus_per_core, cpus_per_numa, cpus_per_socket: rounded down where some are missing; 0 without any.
        in_core, in_numa: id of the core or NUMA node -> its CPUs, ascending.
    """

    def __init__(self, rows: Iterable[tuple[int, int, int, int]] = ()) -> None:
        """Reads rows of (id, core, socket, NUMA node); cores are numbered within a socket, or over all of them."""
        by_id = {id_: Cpu(id_, socket << 16 | core, numa, socket) for id_, core, socket, numa in rows}
        self.cpus = dict(sorted(by_id.items()))
        self.all = frozenset(self.cpus)
        self.in_core: dict[int, list[int]] = {}
        self.in_numa: dict[int, list[int]] = {}
        for cpu in self.cpus.values():
            self.in_core.setdefault(cpu.core, []).append(cpu.id)
            self.in_numa.setdefault(cpu.numa, []).append(cpu.id)
        self.sockets = Counter(cpu.socket for cpu in self.cpus.values())
        count = len(self.cpus)
        self.cpus_per_core = count // len(self.in_core) if count else 0
        self.cpus_per_numa = count // len(self.in_numa) if count else 0
        self.cpus_per_socket = count // len(self.sockets) if count else 0

    @property
    def valid(self) -> bool:
        """Returns True where there is any CPU."""
        return bool(self.cpus)

    def fully_free_cores(self, free: Iterable[int]) -> dict[int, list[int]]:
        """Core -> its free CPUs, ascending, of those cores that have all their CPUs free."""
        cores = self.by_core(free)
        return {core: cpus for core, cpus in cores.items() if len(cpus) == self.cpus_per_core}

    def by_core(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        """Core -> its CPUs among these, ascending; cores in the order of their first CPU."""
        cores: dict[int, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.cpus[cpu].core, []).append(cpu)
        return cores
