"""Selection of the CPUs of an allocation, of those that are available on a node.

Three phases, each only for the CPUs that are still needed: whole cores (unless CPUs are to be spread), one CPU a
core from a single NUMA node or socket, and any CPU. Within a phase, CPUs that an exclusive policy keeps apart are
left out at first, and taken where the others are not enough: exclusion is a preference.

Source: spec/scheduler-core.md 4.7; upstream pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology
from services.scheduler.plugins.node_numa_resource.policy_names import CORE_EXCLUSIVE, FULL_CORES, MOST, NUMA_EXCLUSIVE


class AllocatedCpu(NamedTuple):
    """An allocated CPU: the number of its pods, and the exclusive policy of the newest."""

    pods: int
    exclusive: str


class NotEnoughCpus(Exception):
    """Fewer CPUs are available than an allocation needs."""


class Take(NamedTuple):
    """Parameters of an allocation.

    Attributes:
        need: number of CPUs.
        bind: FullPCPUs takes whole cores first; every other policy spreads over cores.
        exclusive: PCPULevel or NUMANodeLevel avoids cores or NUMA nodes of pods with the same policy.
        strategy: MostAllocated prefers the fullest; every other strategy the emptiest.
        max_pods: number of pods that may share a CPU.
    """

    need: int
    bind: str = ""
    exclusive: str = ""
    strategy: str = ""
    max_pods: int = 1


def take_preferred(
    topology: CpuTopology,
    take: Take,
    available: AbstractSet[int],
    preferred: AbstractSet[int],
    allocated: Mapping[int, AllocatedCpu],
) -> frozenset[int]:
    """Takes CPUs from the preferred ones first, then from the rest; the two parts are selected independently.

    Raises:
        NotEnoughCpus: fewer are available.
    """
    first = available & preferred
    if not first:
        return take_cpus(topology, take, available, allocated)
    head = take_cpus(topology, take._replace(need=min(take.need, len(first))), first, allocated)
    tail = take_cpus(topology, take._replace(need=take.need - len(head)), available - preferred, allocated)
    return head | tail


def take_cpus(
    topology: CpuTopology, take: Take, available: AbstractSet[int], allocated: Mapping[int, AllocatedCpu]
) -> frozenset[int]:
    """Takes CPUs.

    Args:
        available: CPUs of the topology that may be allocated.
        allocated: CPUs of running pods; they decide exclusion, and the order where CPUs are shared.

    Raises:
        NotEnoughCpus: fewer are available.
    """
    if take.need < 1:
        return frozenset()
    if take.need > len(available):
        raise NotEnoughCpus
    accumulator = _Accumulator(topology, take, available, allocated)
    whole_cores = take.bind == FULL_CORES or topology.cpus_per_core == 1
    if (whole_cores and accumulator.take_whole_cores()) or (take.bind != FULL_CORES and accumulator.take_spread()):
        return frozenset(accumulator.taken)
    accumulator.take_rest()
    return frozenset(accumulator.taken)


class _Accumulator:
    """State of one allocation.

    Attributes:
        free: CPUs that remain, ascending.
        taken: CPUs taken so far.
        need: number that is still needed.
    """

    def __init__(
        self, topology: CpuTopology, take: Take, available: AbstractSet[int], allocated: Mapping[int, AllocatedCpu]
    ) -> None:
        self.free = dict.fromkeys(sorted(available))
        self.taken: list[int] = []
        self.need = take.need
        self._topology = topology
        self._cpus = topology.cpus
        self._take = take
        self._held = allocated
        self._sign = 1 if take.strategy == MOST else -1
        self._shut_cores: set[int] = set()
        self._shut_numas: set[int] = set()
        for cpu, pod_allocation in allocated.items():
            if cpu in self._cpus and pod_allocation.exclusive == take.exclusive:
                self._exclude(cpu)

    # the phases; each returns True where its CPUs were enough

    def take_whole_cores(self) -> bool:
        """Takes whole free cores of one NUMA node, else of one socket, else of several (F1 to F4)."""
        if self._take_within(self._topology.cpus_per_numa, self._cores_by_numa, (True, False)):
            return True
        if self._take_within(self._topology.cpus_per_socket, self._cores_by_socket, (False,)):
            return True
        kept = []
        for cpus in sorted(self._cores_by_socket(keep_apart=False), key=len, reverse=True):
            if self.need < len(cpus):
                kept.append(cpus)
            elif self._add(cpus):
                return True
        return self.need >= self._topology.cpus_per_core and self._take_core_by_core(sorted(kept, key=len))

    def _take_core_by_core(self, lists: Sequence[list[int]]) -> bool:
        """Takes cores of one list after the other (F4).

        As upstream has it, a remainder of less than a core is taken from the next list as a whole core: a need that
            is no
        multiple of the core can end with a CPU more than requested.
        """
        size = self._topology.cpus_per_core
        for cpus in lists:
            for at in range(0, len(cpus), size):
                if self._add(cpus[at : at + size]):
                    return True
                if self.need < size:
                    break
        return False

    def take_spread(self) -> bool:
        """Takes CPUs of different cores, of one NUMA node or else of one socket (S1, S2)."""
        if self._take_within(self._topology.cpus_per_numa, self._spread_by_numa, (True, False)):
            return True
        return self._take_within(self._topology.cpus_per_socket, self._spread_by_socket, (True, False))

    def take_rest(self) -> None:
        """Takes CPU by CPU, near those that are taken already (R).

        Raises:
            NotEnoughCpus: none is left.
        """
        for keep_apart in (True, False):
            for cpu in self._spread([cpu for cpus in self._cores_left(keep_apart=keep_apart) for cpu in cpus]):
                if self._add([cpu]):
                    return
        raise NotEnoughCpus

    # the candidates of each phase, best first

    def _take_within(self, most: int, lists: "_Lists", honours: Sequence[bool]) -> bool:
        """Takes the beginning of the first list that is long enough, with exclusion and then without."""
        if self.need > most:
            return False
        for keep_apart in honours:
            for cpus in lists(keep_apart=keep_apart):
                if len(cpus) >= self.need:
                    return self._add(cpus[: self.need])
        return False

    def _cores_by_numa(self, *, keep_apart: bool) -> list[list[int]]:
        """CPUs of whole free cores, a list a NUMA node."""
        free = [cpu for cpu in self.free if not (keep_apart and self._numa_is_excluded(cpu))]
        sockets = Counter(self._cpus[cpu].socket for cpu in free)
        lists = self._group(self._whole_cores(free), self._numa)
        return self._ordered(lists, lambda cpus: (len(cpus), sockets[self._socket(cpus[0])]), self._numa)

    def _cores_by_socket(self, *, keep_apart: bool) -> list[list[int]]:  # noqa: ARG002 (no socket is exclusive)
        """CPUs of whole free cores, a list a socket."""
        lists = self._group(self._whole_cores(self.free), self._socket)
        return self._ordered(lists, lambda cpus: (len(cpus),), self._socket)

    def _spread_by_numa(self, *, keep_apart: bool) -> list[list[int]]:
        """Free CPUs, a list a NUMA node; when pods are kept apart, one of each core."""
        free = [cpu for cpu in self._by_use(self.free) if not (keep_apart and self._is_excluded(cpu))]
        numas, sockets = Counter(map(self._numa, free)), Counter(map(self._socket, free))
        lists = self._group(self._first_of_cores(free) if keep_apart else free, self._numa)
        ordered = self._ordered(
            lists, lambda cpus: (numas[self._numa(cpus[0])], sockets[self._socket(cpus[0])]), self._numa
        )
        return [self._spread(cpus) for cpus in ordered]

    def _spread_by_socket(self, *, keep_apart: bool) -> list[list[int]]:
        """Free CPUs, a list a socket; when pods are kept apart, one of each core."""
        free = [cpu for cpu in self._by_use(self.free) if not (keep_apart and self._core_is_excluded(cpu))]
        lists = self._group(self._first_of_cores(free) if keep_apart else free, self._socket)
        return [self._spread(cpus) for cpus in self._ordered(lists, lambda cpus: (len(cpus),), self._socket)]

    def _cores_left(self, *, keep_apart: bool) -> list[list[int]]:
        """Free CPUs, a list a core: near what is taken first, then by how full socket and NUMA node are."""
        free = [cpu for cpu in self.free if not (keep_apart and self._is_excluded(cpu))]
        near = Counter(map(self._socket, self.taken))
        numas, sockets = Counter(map(self._numa, free)), Counter(map(self._socket, free))

        def key(cpus: list[int]) -> tuple[int, ...]:
            cpu = self._cpus[cpus[0]]
            fullness = (self._sign * sockets[cpu.socket], self._sign * numas[cpu.numa])
            return (-near[cpu.socket], *fullness, len(cpus), cpu.socket, self._uses(cpus), cpu.core)

        return sorted((self._by_use(cpus) for cpus in self._topology.by_core(free).values()), key=key)

    # building blocks

    def _whole_cores(self, free: Iterable[int]) -> list[int]:
        """CPUs of cores that are wholly free, core by core: least used first when CPUs are shared, then by number."""
        cores = self._topology.fully_free_cores(free)
        ordered = sorted(cores, key=lambda core: (self._uses(cores[core]), core))
        return [cpu for core in ordered for cpu in cores[core]]

    def _ordered(
        self, lists: Iterable[list[int]], room: Callable[[list[int]], tuple[int, ...]], number: Callable[[int], int]
    ) -> list[list[int]]:
        """Fullest first or emptiest first, by the strategy; of equals the lower number."""
        return sorted(lists, key=lambda cpus: (*(self._sign * size for size in room(cpus)), number(cpus[0])))

    @staticmethod
    def _group(cpus: Iterable[int], by: Callable[[int], int]) -> Iterable[list[int]]:
        groups: dict[int, list[int]] = {}
        for cpu in cpus:
            groups.setdefault(by(cpu), []).append(cpu)
        return groups.values()

    def _first_of_cores(self, cpus: Iterable[int]) -> list[int]:
        return [core[0] for core in self._group(cpus, self._core)]

    def _spread(self, cpus: list[int]) -> list[int]:
        """One CPU of each core, then a second one of each, and so on; the order is kept otherwise."""
        if len(cpus) <= self._topology.cpus_per_core:
            return cpus
        turn: Counter[int] = Counter()
        turns: dict[int, int] = {}
        for cpu in cpus:
            turns[cpu] = turn[self._core(cpu)]
            turn[self._core(cpu)] += 1
        return sorted(cpus, key=turns.__getitem__)

    def _by_use(self, cpus: Iterable[int]) -> list[int]:
        """CPUs by the number of pods that share them, where they may be shared, and by number."""
        return sorted(cpus, key=lambda cpu: (self._uses((cpu,)), cpu))

    def _uses(self, cpus: Iterable[int]) -> int:
        """Sum over these CPUs of their pods; 0 where CPUs are not shared."""
        if self._take.max_pods <= 1:
            return 0
        return sum(self._held[cpu].pods for cpu in cpus if cpu in self._held)

    def _core(self, cpu: int) -> int:
        return self._cpus[cpu].core

    def _numa(self, cpu: int) -> int:
        return self._cpus[cpu].numa

    def _socket(self, cpu: int) -> int:
        return self._cpus[cpu].socket

    def _is_excluded(self, cpu: int) -> bool:
        return self._core_is_excluded(cpu) or self._numa_is_excluded(cpu)

    def _core_is_excluded(self, cpu: int) -> bool:
        return self._take.exclusive == CORE_EXCLUSIVE and self._cpus[cpu].core in self._shut_cores

    def _numa_is_excluded(self, cpu: int) -> bool:
        return self._take.exclusive == NUMA_EXCLUSIVE and self._cpus[cpu].numa in self._shut_numas

    def _exclude(self, cpu: int) -> None:
        self._shut_cores.add(self._cpus[cpu].core)
        self._shut_numas.add(self._cpus[cpu].numa)

    def _add(self, cpus: Iterable[int]) -> bool:
        """Takes these CPUs; returns True where no more are needed."""
        for cpu in cpus:
            del self.free[cpu]
            self.taken.append(cpu)
            self.need -= 1
            self._exclude(cpu)
        return self.need < 1


class _Lists(Protocol):
    def __call__(self, *, keep_apart: bool) -> list[list[int]]: ...
