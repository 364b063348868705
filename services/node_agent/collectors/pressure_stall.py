"""Pressure stall information (PSI) of a cgroup: percent of the last ten seconds in which tasks waited.

Of cpu, memory and io. Source: spec/node-agent.md 1.2 (PSI), E30.
"""

from pathlib import Path
from typing import NamedTuple

RESOURCES = ("cpu", "mem", "io")
_FILES = {"cpu": "cpu.pressure", "mem": "memory.pressure", "io": "io.pressure"}


class Stall(NamedTuple):
    """Percent of the last ten seconds.

    Attributes:
        some: in which at least one task waited.
        full: in which all tasks waited.
        has_full: the kernel reports `full`; kernels before 5.13 do not for cpu.
    """

    some: float
    full: float
    has_full: bool


def parse_pressure(text: str) -> Stall:
    """Parses the content of a file.

    Raises:
        ValueError: it has no line `some`.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        degree, _, rest = line.partition(" ")
        for field in rest.split():
            name, _, value = field.partition("=")
            if name == "avg10":
                found[degree] = float(value)
    if "some" not in found:
        raise ValueError("no line `some` with avg10")
    return Stall(found["some"], found.get("full", 0.0), "full" in found)


def cgroup_pressure(folder: Path) -> dict[str, Stall]:
    """Returns pressure by resource, of those that this kernel reports."""
    found = {}
    for resource, file in _FILES.items():
        try:
            found[resource] = parse_pressure((folder / file).read_text())
        except (OSError, ValueError):
            continue
    return found
