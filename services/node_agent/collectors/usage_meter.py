"""Meters that take usage samples from the open counter files of one thing: a node, a cgroup, a NUMA zone."""

from collections.abc import Callable
from typing import NamedTuple

from services.node_agent.collectors.open_counter_files import OpenFile
from services.node_agent.collectors.usage_sample_types import MICRO, Usage


class Reading(NamedTuple):
    """A file with the function that parses a number out of it."""

    file: OpenFile
    parse: Callable[[OpenFile], int]

    def value(self) -> int:
        """Returns the present number.

        Raises:
            OSError, BadFile: it cannot be read.
        """
        return self.parse(self.file)


class MemoryWithCache(NamedTuple):
    """Bytes with page cache, minus cold pages where `cold` is set."""

    whole: Reading
    cold: Reading | None = None

    def value(self) -> int:
        """Returns the present bytes.

        Raises:
            OSError, BadFile: they cannot be read.
        """
        return self.whole.value() - (self.cold.value() if self.cold is not None else 0)


class Meter:
    """A CPU counter and a memory gauge of one thing, with their files open."""

    __slots__ = ("_at_ns", "_count", "_counted", "_cpu", "_memory", "_unit_ns")

    def __init__(
        self, cpu: Reading | None, memory: Reading | None, unit_ns: int = 1, counted: MemoryWithCache | None = None
    ) -> None:
        """Makes an unprimed meter.

        Args:
            cpu, memory: None when the node does not measure it.
            unit_ns: nanoseconds of one unit of the counter.
            counted: memory for reports, where that differs from `memory`.
        """
        self._cpu = cpu
        self._memory = memory
        self._counted = counted
        self._unit_ns = unit_ns
        self._count = 0
        self._at_ns = -1

    def sample(self, clock_ns: Callable[[], int], lasts_ns: int) -> Usage | None:
        """Returns a sample.

        None when this call only primes: the first one, one after `lasts_ns`, or one of a counter that was reset.

        Raises:
            OSError, BadFile: it cannot be read.
        """
        memory = None if self._memory is None else self._memory.value()
        counted = None if self._counted is None else self._counted.value()
        if self._cpu is None:
            primed, self._at_ns = self._at_ns >= 0, 0
            return Usage(None, memory, counted) if primed else None
        # Read after the memory files and right before the clock, so that slow reads do not distort the rate.
        count = self._cpu.value()
        now = clock_ns()
        before, since = self._count, now - self._at_ns
        primed = self._at_ns >= 0 and count >= before and 0 < since <= lasts_ns
        self._count, self._at_ns = count, now
        return Usage((count - before) * self._unit_ns * MICRO // since, memory, counted) if primed else None

    def close(self) -> None:
        """Closes the files."""
        files = {reading.file for reading in (self._cpu, self._memory) if reading is not None}
        if self._counted is not None:
            files |= {reading.file for reading in self._counted if reading is not None}
        for file in files:
            file.close()
