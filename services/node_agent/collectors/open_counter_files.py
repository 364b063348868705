"""Counters from /proc and cgroup files, which stay open, are read from the start each time, and parsed as bytes.

Reading an open file costs a third of opening it each time, and a read of a removed cgroup's file fails, which shows
that it is gone.
"""

import os
from pathlib import Path
from typing import Self

STAT_BYTES = 512
"""Enough for the first line of /proc/stat."""
MEMINFO_BYTES = 512
"""Enough for MemTotal and MemAvailable, the first and third line."""
CGROUP_BYTES = 16_384
"""Enough for a memory.stat of a kernel with every option."""


class BadFile(ValueError):
    """A file does not hold what the kernel documents."""

    def __init__(self, path: Path | str, missing: str) -> None:
        super().__init__(f"{path} has no {missing}")


class OpenFile:
    """A file that stays open to be read often."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path | str) -> None:
        """Opens the file. A text costs a third of a Path.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def maybe(cls, path: Path) -> Self | None:
        """Returns the file, or None when it cannot be opened."""
        try:
            return cls(path)
        except OSError:
            return None

    def read(self, size: int) -> bytes:
        """Returns its first bytes, as they are now.

        Raises:
            OSError: it is gone.
        """
        return os.pread(self._fd, size, 0)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def read_once(path: str, size: int = 1024) -> bytes:
    """Returns the first bytes of a file that is read seldom.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def cpu_ticks(file: OpenFile) -> int:
    """Clock ticks that the node's CPUs were busy: user + nice + system + irq + softirq of /proc/stat.

    Source: spec/node-agent.md 1.2; idle, iowait, steal and guest (which user holds already) do not count.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    line, _, _ = file.read(STAT_BYTES).partition(b"\n")
    fields = line.split()
    if len(fields) < 8 or fields[0] != b"cpu":
        raise BadFile(file.path, "line `cpu` of 8 fields")
    return int(fields[1]) + int(fields[2]) + int(fields[3]) + int(fields[6]) + int(fields[7])


def memory_used(file: OpenFile) -> int:
    """Bytes in use without page cache: MemTotal - MemAvailable of /proc/meminfo.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(MEMINFO_BYTES)
    return (_after(file, text, b"MemTotal:") - _after(file, text, b"MemAvailable:")) * 1024


def cgroup_cpu_v1(file: OpenFile) -> int:
    """Nanoseconds of CPU from cpuacct.usage.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    try:
        return int(file.read(64))
    except ValueError as error:
        raise BadFile(file.path, "number") from error


def cgroup_cpu_v2(file: OpenFile) -> int:
    """Nanoseconds of CPU from cpu.stat's usage_usec.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    return _after(file, file.read(CGROUP_BYTES), b"usage_usec") * 1000


def cgroup_memory_v1(file: OpenFile) -> int:
    """Bytes of a cgroup and those below it: the sum of total_inactive_anon, total_active_anon and total_unevictable.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(CGROUP_BYTES)
    return (
        _after(file, text, b"total_inactive_anon")
        + _after(file, text, b"total_active_anon")
        + _after(file, text, b"total_unevictable")
    )


def cgroup_memory_v2(file: OpenFile) -> int:
    """The same of a v2 memory.stat, which includes the cgroups below without a prefix.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(CGROUP_BYTES)
    return (
        _after(file, text, b"inactive_anon") + _after(file, text, b"active_anon") + _after(file, text, b"unevictable")
    )


def number(text: bytes, name: bytes) -> int:
    """Returns the number behind a name that begins a line.

    Raises:
        ValueError: there is no such line.
    """
    at = text.find(name + b" ")
    if at < 0:
        raise ValueError(name.decode())
    begin = at + len(name) + 1
    end = text.find(b"\n", begin)
    return int(text[begin : end if end >= 0 else len(text)])


def _after(file: OpenFile, text: bytes, name: bytes) -> int:
    """Returns the number behind a name that begins a line."""
    at = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    if at == 0 and not text.startswith(name):
        raise BadFile(file.path, name.decode())
    begin = at + len(name)
    end = text.find(b"\n", begin)
    number = text[begin : end if end >= 0 else len(text)].split(None, 1)
    if not number or not number[0].isdigit():
        raise BadFile(file.path, name.decode())
    return int(number[0])


def memory_with_cache(file: OpenFile) -> int:
    """Bytes in use with page cache: MemTotal - MemFree of /proc/meminfo.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(MEMINFO_BYTES)
    return (_after(file, text, b"MemTotal:") - _after(file, text, b"MemFree:")) * 1024


def cgroup_cached_v1(file: OpenFile) -> int:
    """`cgroup_memory_v1` with page cache: active_file + inactive_file.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(CGROUP_BYTES)
    return sum(_after(file, text, b"total_" + name) for name in (*_USED, *_CACHED))


def cgroup_cached_v2(file: OpenFile) -> int:
    """The same of a v2 memory.stat.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    text = file.read(CGROUP_BYTES)
    return sum(_after(file, text, name) for name in (*_USED, *_CACHED))


_USED = (b"inactive_anon", b"active_anon", b"unevictable")
_CACHED = (b"inactive_file", b"active_file")

IDLE_LINES = 31
COLD_FROM = 5
"""Index of the first column that counts as cold: pages idle for 60 scan periods and more."""
_COLD_ROWS = frozenset((b"cfei", b"dfei", b"cfui", b"dfui"))


def cold_bytes(file: OpenFile) -> int:
    """Bytes of file pages that are cold, from memory.idle_page_stats.

    Source: spec/node-agent.md 3.14.

    Raises:
        OSError, BadFile: it cannot be read, or has another layout than the supported one.
    """
    lines = file.read(CGROUP_BYTES).strip(b"\n").split(b"\n")
    if len(lines) != IDLE_LINES:
        raise BadFile(file.path, f"{IDLE_LINES} lines, but {len(lines)}")
    total = 0
    try:
        for line in lines[14:]:
            name, *sizes = line.split()
            if name in _COLD_ROWS:
                total += sum(map(int, sizes[COLD_FROM:]))
    except ValueError as error:
        raise BadFile(file.path, "rows of numbers") from error
    return total
