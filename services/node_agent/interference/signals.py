"""Signals of a slowed pod: rates that rise when other pods take its cpu time, caches, memory, disk or network.

A signal is computed from two readings of the kernel's counters. A signal that the kernel does not count is absent.
"""

from collections.abc import Mapping
from typing import NamedTuple

from shared.agents.actions import SIGNAL_NAMES


class Signal(NamedTuple):
    """One signal.

    Attributes:
        floor: a value up to this is never a deviation, in the signal's unit.
        activity: the activity of neighbours that it is correlated with: cpu, memory, io or network.
    """

    floor: float
    activity: str


SIGNALS: Mapping[str, Signal] = {
    "cpi": Signal(0.2, "cpu"),
    "cpuPressure": Signal(10, "cpu"),
    "schedulingLatency": Signal(250, "cpu"),
    "memoryPressure": Signal(10, "memory"),
    "refaults": Signal(100, "memory"),
    "directReclaim": Signal(100, "memory"),
    "ioPressure": Signal(10, "io"),
    "diskLatency": Signal(5_000, "io"),
    "retransmits": Signal(20, "network"),
    "drops": Signal(10, "network"),
}
"""Name -> signal. Units: cycles an instruction; percent of time (pressure); microseconds a time slice, and an I/O;
pages a second; segments of 1,000; packets a second."""

assert tuple(SIGNALS) == SIGNAL_NAMES

ACTIVITY_FLOORS: Mapping[str, float] = {"cpu": 50, "memory": 16 * 2**20, "io": 2**20, "network": 2**20}
"""A neighbour with less activity is no suspect: milli-cores; bytes; bytes a second."""

LEAST_SLICES = 10
"""Time slices in an interval below which the scheduling latency is not computed: an idle pod has too few."""
LEAST_SEGMENTS = 100
"""The same of TCP segments sent, for retransmits."""


class Counters(NamedTuple):
    """One reading of a pod's counters; None where the kernel does not count.

    Attributes:
        at_ns: instant of the reading, by the monotonic clock.
        threads: id of a thread -> (nanoseconds for which it waited for a CPU, time slices).
        pressure: signal -> percent of the last ten seconds.
        refaults, direct_reclaim: pages since the start of the cgroup.
        io_bytes: read and written. io_latency_us: mean of the kernel's own window.
        segments, retransmitted: TCP segments of the pod's network namespace.
        drops: packets dropped in the pod's traffic class. sent_bytes: of its network namespace.
        cycles, instructions: of the last complete window.
        cpu_milli, memory: usage as collected, milli-cores and bytes.
    """

    at_ns: int
    threads: Mapping[int, tuple[int, int]] = {}
    pressure: Mapping[str, float] = {}
    refaults: int | None = None
    direct_reclaim: int | None = None
    io_bytes: int | None = None
    io_latency_us: float | None = None
    segments: int | None = None
    retransmitted: int | None = None
    drops: int | None = None
    sent_bytes: int | None = None
    cycles: int | None = None
    instructions: int | None = None
    cpu_milli: float | None = None
    memory: float | None = None


def signals_of(before: Counters, after: Counters) -> dict[str, float]:
    """Returns the signals between two readings, in the order of SIGNALS; empty when no time passed.

    The scheduling latency is the wait for a CPU per time slice, over all threads:
    `sum(wait) / sum(slices) / 1000` microseconds; a thread that is new counts from its start.
    """
    seconds = (after.at_ns - before.at_ns) / 1e9
    if seconds <= 0:
        return {}
    found: dict[str, float | None] = {
        "cpi": after.cycles / after.instructions if after.cycles is not None and after.instructions else None,
        **after.pressure,
        "schedulingLatency": _scheduling_latency_us(before.threads, after.threads),
        "refaults": _rate(before.refaults, after.refaults, seconds),
        "directReclaim": _rate(before.direct_reclaim, after.direct_reclaim, seconds),
        "diskLatency": after.io_latency_us,
        "retransmits": _retransmits(before, after),
        "drops": _rate(before.drops, after.drops, seconds),
    }
    return {name: value for name in SIGNALS if (value := found.get(name)) is not None}


def activity_of(before: Counters, after: Counters) -> dict[str, float]:
    """Returns the activity of a pod between two readings: milli-cores, bytes, and bytes a second."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    if seconds <= 0:
        return {}
    found = {
        "cpu": after.cpu_milli,
        "memory": after.memory,
        "io": _rate(before.io_bytes, after.io_bytes, seconds),
        "network": _rate(before.sent_bytes, after.sent_bytes, seconds),
    }
    return {name: value for name, value in found.items() if value is not None}


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    """Returns the increase a second; None where it was not counted, or the counter began again."""
    if before is None or after is None or after < before:
        return None
    return (after - before) / seconds


def _scheduling_latency_us(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> float | None:
    wait, slices = 0, 0
    for thread, (waited, ran) in after.items():
        waited_before, ran_before = before.get(thread, (0, 0))
        if waited >= waited_before and ran >= ran_before:  # else the id belongs to a new thread
            wait, slices = wait + waited - waited_before, slices + ran - ran_before
    return wait / slices / 1000 if slices >= LEAST_SLICES else None


def _retransmits(before: Counters, after: Counters) -> float | None:
    if before.segments is None or after.segments is None or before.retransmitted is None or after.retransmitted is None:
        return None
    sent, again = after.segments - before.segments, after.retransmitted - before.retransmitted
    return again * 1000 / sent if sent >= LEAST_SEGMENTS and again >= 0 else None
