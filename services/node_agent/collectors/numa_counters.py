"""Counters of NUMA zones, from /proc, sysfs and cgroup files. Source: spec/node-agent.md 1.2."""

from services.node_agent.collectors.open_counter_files import CGROUP_BYTES, BadFile, OpenFile

STAT_WHOLE_BYTES = 262_144
"""Enough for the lines of some thousand CPUs, which come first."""


def ticks_by_cpu(file: OpenFile) -> dict[int, int]:
    """Returns the busy ticks of /proc/stat by CPU.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    found: dict[int, int] = {}
    for line in file.read(STAT_WHOLE_BYTES).split(b"\n"):
        if not line.startswith(b"cpu"):
            break
        name, *fields = line.split()
        if len(name) > 3:
            try:
                found[int(name[3:])] = sum(int(fields[index]) for index in (0, 1, 2, 5, 6))
            except (ValueError, IndexError) as error:
                raise BadFile(file.path, f"line {name.decode(errors='replace')} of 8 fields") from error
    return found


def zone_total(file: OpenFile) -> int:
    """Bytes of a NUMA zone: MemTotal of its meminfo.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    return _zone(file)[b"MemTotal:"] * 1024


def zone_memory(file: OpenFile) -> int:
    """Bytes in use in a NUMA zone: MemTotal - (MemFree + Active(file) + Inactive(file) + SReclaimable), at least 0.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    found = _zone(file)
    free = found[b"MemFree:"] + found[b"Active(file):"] + found[b"Inactive(file):"] + found[b"SReclaimable:"]
    return max(found[b"MemTotal:"] - free, 0) * 1024


_ZONE_NAMES = (b"MemTotal:", b"MemFree:", b"Active(file):", b"Inactive(file):", b"SReclaimable:")


def _zone(file: OpenFile) -> dict[bytes, int]:
    """Returns KiB by name; each line begins with `Node N`."""
    found: dict[bytes, int] = {}
    for line in file.read(CGROUP_BYTES).split(b"\n"):
        fields = line.split()
        if len(fields) >= 4 and fields[2] in _ZONE_NAMES and fields[3].isdigit():
            found[fields[2]] = int(fields[3])
    for name in _ZONE_NAMES:
        if name not in found:
            raise BadFile(file.path, name.decode())
    return found


def numa_pages_v1(file: OpenFile) -> dict[int, int]:
    """Pages by NUMA zone of a cgroup with those below it, from a v1 memory.numa_stat.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    return _pages(file, (b"hierarchical_total=", b"total="))


def _pages(file: OpenFile, begins: tuple[bytes, ...]) -> dict[int, int]:
    lines = file.read(CGROUP_BYTES).split(b"\n")
    for begin in begins:
        for line in lines:
            if line.startswith(begin):
                return _by_zone(file, line)
    raise BadFile(file.path, begins[0].decode())


def numa_pages_v2(file: OpenFile) -> dict[int, int]:
    """Pages of 4 KiB by NUMA zone: `anon` and `file` of a v2 memory.numa_stat, which is in bytes.

    Raises:
        OSError, BadFile: it cannot be read.
    """
    found: dict[int, int] = {}
    for line in file.read(CGROUP_BYTES).split(b"\n"):
        if line.startswith((b"anon ", b"file ")):
            for zone, size in _by_zone(file, line).items():
                found[zone] = found.get(zone, 0) + size
    return {zone: size // 4096 for zone, size in found.items()}


def _by_zone(file: OpenFile, line: bytes) -> dict[int, int]:
    try:
        parts = (field[1:].split(b"=") for field in line.split() if field[:1] == b"N")
        return {int(zone): int(count) for zone, count in parts}
    except ValueError as error:
        raise BadFile(file.path, "counts by zone") from error
