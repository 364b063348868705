"""Pressure stall information (PSI) of a cgroup: percent of the last 10, 60 and 300 seconds in which tasks waited.

Of cpu, memory and io. Source: spec/node-agent.md 1.2 (PSI), E30.
"""

from typing import NamedTuple

from services.node_agent.collectors.open_counter_files import read_once

RESOURCES = ("cpu", "mem", "io")
AVERAGES = ("avg10", "avg60", "avg300")
_FILES = {"cpu": "cpu.pressure", "mem": "memory.pressure", "io": "io.pressure"}


class Averages(NamedTuple):
    """Percent of the last 60 and 300 seconds."""

    avg60: float = 0.0
    avg300: float = 0.0


class Stall(NamedTuple):
    """Percent of the last ten seconds.

    Attributes:
        some: in which at least one task waited.
        full: in which all tasks waited.
        has_full: the kernel reports `full`; kernels before 5.13 do not for cpu.
        some_longer, full_longer: the same over longer times.
    """

    some: float
    full: float
    has_full: bool
    some_longer: Averages = Averages()
    full_longer: Averages = Averages()


def parse_pressure(text: str) -> Stall:
    """Parses the content of a file.

    Raises:
        ValueError: it has no line `some`.
    """
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        degree, _, rest = line.partition(" ")
        fields = (field.partition("=") for field in rest.split())
        found[degree] = {name: float(value) for name, _, value in fields if name in AVERAGES}
    some, full = found.get("some", {}), found.get("full", {})
    if "avg10" not in some:
        raise ValueError("no line `some` with avg10")
    longer = (Averages(each.get("avg60", 0.0), each.get("avg300", 0.0)) for each in (some, full))
    return Stall(some["avg10"], full.get("avg10", 0.0), "avg10" in full, *longer)


def cgroup_pressure(folder: str) -> dict[str, Stall]:
    """Returns pressure by resource, of those that this kernel reports. A text costs a third of a Path."""
    found = {}
    for resource, file in _FILES.items():
        try:
            found[resource] = parse_pressure(read_once(f"{folder}/{file}").decode())
        except (OSError, ValueError):
            continue
    return found
