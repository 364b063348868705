"""The node's hardware: CPU model, CPUs, memory of NUMA zones. Source: spec/node-agent.md 1.2, 7.2."""

import re
from pathlib import Path
from typing import NamedTuple

from services.node_agent.qos_manager.strategies.cpu_selection import Processor
from services.node_agent.topology.cpu_topology import processors

_ZONE = re.compile(r"node(\d+)").fullmatch
_TOTAL = re.compile(r"MemTotal:\s+(\d+) kB")
HUGE = {"hugepages-1Gi": 1 << 20, "hugepages-2Mi": 2 << 10}
"""Resource -> KiB of a page."""


class BasicInfo(NamedTuple):
    """CPU model and its enabled features.

    Attributes:
        cache_mask: ways of the third-level cache that can be allocated, as resctrl writes it; empty without resctrl.
    """

    model: str = ""
    vendor: str = ""
    hyper_threads: bool = False
    turbo: bool = False
    cache_mask: str = ""


class ZoneMemory(NamedTuple):
    """Memory of a NUMA zone.

    Attributes:
        total: bytes, huge pages included.
        huge: resource of huge pages -> bytes.
    """

    total: int
    huge: dict[str, int]


class Hardware(NamedTuple):
    """A node's hardware.

    Attributes:
        processors: those online.
        memory: by zone; zones without memory (of devices) are left out.
    """

    processors: tuple[Processor, ...]
    basic: BasicInfo
    memory: dict[int, ZoneMemory]


def read_hardware(proc: Path, sys: Path) -> Hardware:
    """Reads the present hardware; what cannot be read is empty."""
    return Hardware(processors(sys), _basic(proc, sys), _memory(sys / "devices/system/node"))


def _basic(proc: Path, sys: Path) -> BasicInfo:
    fields: dict[str, str] = {}
    for line in _text(proc / "cpuinfo").split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    cpu = sys / "devices/system/cpu"
    return BasicInfo(
        fields.get("model name", ""),
        fields.get("vendor_id", ""),
        _text(cpu / "smt/active") == "1",
        _text(cpu / "intel_pstate/no_turbo") == "0",
        _text(sys / "fs/resctrl/info/L3/cbm_mask"),
    )


def _memory(base: Path) -> dict[int, ZoneMemory]:
    found: dict[int, ZoneMemory] = {}
    try:
        folders = [(int(match[1]), folder) for folder in base.iterdir() if (match := _ZONE(folder.name))]
    except OSError:
        return {}
    for zone, folder in sorted(folders):
        total = _TOTAL.search(_text(folder / "meminfo"))
        if total is None or int(total[1]) == 0:
            continue
        huge = {
            resource: int(_text(folder / f"hugepages/hugepages-{page}kB/nr_hugepages") or 0) * page * 1024
            for resource, page in HUGE.items()
        }
        found[zone] = ZoneMemory(int(total[1]) * 1024, huge)
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
