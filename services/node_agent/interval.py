"""What the rounds of one interval add up to: the report, except who sends it."""

from typing import NamedTuple

from services.node_agent.collect import Round, Usage
from shared.agents.report import PodSum, Report, Series

MILLI_NS = 1_000_000


class Sender(NamedTuple):
    """Whose report it is: see `Report`."""

    node: str
    boot: str


class _Samples:
    """One series as it grows."""

    __slots__ = ("cpu", "memory", "offset_ms")

    def __init__(self) -> None:
        self.offset_ms: list[int] = []
        self.cpu: list[int] = []
        self.memory: list[int] = []

    def add(self, offset_ms: int, usage: Usage | None) -> None:
        if usage is None:
            return
        self.offset_ms.append(offset_ms)
        if usage.cpu is not None:
            self.cpu.append(usage.cpu)
        if usage.memory is not None:
            self.memory.append(usage.memory)

    def series(self) -> Series:
        whole = len(self.offset_ms)  # a value that some samples lack is left out: nothing says which ones
        cpu, memory = (tuple(values) if len(values) == whole else () for values in (self.cpu, self.memory))
        return Series(tuple(self.offset_ms) if cpu or memory else (), cpu, memory)


class Interval:
    """The samples since `begin_ns`."""

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self._node, self._system, self._best_effort = _Samples(), _Samples(), _Samples()
        self._pods: dict[str, list[int]] = {}
        """Uid -> the fields of PodSum behind `uid`."""

    def add(self, found: Round) -> None:
        """Take a round's samples."""
        offset_ms = (found.at_ns - self.begin_ns) // MILLI_NS
        self._node.add(offset_ms, found.node)
        self._system.add(offset_ms, found.system)
        self._best_effort.add(offset_ms, found.best_effort)
        pods = self._pods
        for uid, (cpu, memory) in found.pods.items():
            sums = pods.get(uid)
            if sums is None:
                sums = pods[uid] = [0] * 6
            if cpu is not None:
                sums[0] += cpu
                sums[1] += 1
                sums[2] = cpu
            if memory is not None:
                sums[3] += memory
                sums[4] += 1
                sums[5] = memory

    @property
    def empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self._node.offset_ms or self._pods)

    def report(self, sender: Sender, seq: int, end_ns: int, at_ns: int) -> Report:
        """The report.

        Args:
            end_ns: the interval's end by the clock of the rounds.
            at_ns: the same instant, nanoseconds since the epoch.
        """
        return Report(
            node=sender.node,
            boot=sender.boot,
            seq=seq,
            at_ns=at_ns,
            interval_ns=end_ns - self.begin_ns,
            node_usage=self._node.series(),
            system_usage=self._system.series(),
            best_effort_usage=self._best_effort.series(),
            pods=tuple(PodSum(uid, *self._pods[uid]) for uid in sorted(self._pods)),
        )
