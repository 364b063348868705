"""Hardware counters of a cgroup, by perf_event_open: cycles and instructions of a container over a while.

They need a PMU (most virtual machines have none), a kernel with perf events, CAP_PERFMON, and in cgroup v1 the
controller `perf_event`. Source: spec/node-agent.md 1.2 (CPI); linux/perf_event.h.
"""

import ctypes
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple, Self

from shared.errors import KoordError

_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 112
_TYPE_AT, _SIZE_AT, _CONFIG_AT, _FORMAT_AT = 0, 4, 8, 32
_TOTAL_TIMES = 0b11
"""Of `read_format`: time enabled and time running. They differ where a processor multiplexes few counters."""
_BY_CGROUP = 4


class Event(NamedTuple):
    """A counted event: `type` and `config` of perf_event_attr."""

    type: int
    config: int


CYCLES, INSTRUCTIONS = Event(0, 0), Event(0, 1)
TASK_CLOCK = Event(1, 1)
"""Nanoseconds of cpu: a software counter, which needs no PMU."""


class PerfUnavailable(KoordError):
    """Perf events are not available on this kernel or machine."""

    def __init__(self, why: str) -> None:
        super().__init__(f"perf events cannot be counted for cgroups: {why}")


class Counters:
    """The events of one cgroup on every CPU, since construction."""

    def __init__(self, cgroup: Path, events: tuple[Event, ...], cpus: tuple[int, ...]) -> None:
        """Starts counting.

        Raises:
            PerfUnavailable: an event cannot be counted here.
            OSError: there is no such cgroup.
        """
        self._fds: list[list[int]] = []
        folder = os.open(cgroup, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for event in events:
                self._fds.append([])
                for cpu in cpus:
                    self._fds[-1].append(_open(event, folder, cpu))
        except PerfUnavailable:
            self.close()
            raise
        finally:
            os.close(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def totals(self) -> list[int]:
        """Returns the count of each event: the sum over all CPUs, each scaled by time enabled / time running."""
        return [sum(map(_read, fds)) for fds in self._fds]

    def close(self) -> None:
        """Closes the counters."""
        for fds in self._fds:
            for fd in fds:
                os.close(fd)
        self._fds = []


def _open(event: Event, folder: int, cpu: int) -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise PerfUnavailable(f"the call's number on {platform.machine()} is not known")
    attr = bytearray(_ATTR_BYTES)
    struct.pack_into("I", attr, _TYPE_AT, event.type)
    struct.pack_into("I", attr, _SIZE_AT, _ATTR_BYTES)
    struct.pack_into("Q", attr, _CONFIG_AT, event.config)
    struct.pack_into("Q", attr, _FORMAT_AT, _TOTAL_TIMES)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(bytes(attr), _ATTR_BYTES)
    fd: int = libc.syscall(number, buffer, folder, cpu, -1, _BY_CGROUP)
    if fd < 0:
        raise PerfUnavailable(f"event {event.type}/{event.config}: {os.strerror(ctypes.get_errno())}")
    os.set_inheritable(fd, False)  # noqa: FBT003  the call's own form
    return fd


def _read(fd: int) -> int:
    value, enabled, running = struct.unpack("QQQ", os.read(fd, 24))
    return int(value * enabled // running) if running else 0
