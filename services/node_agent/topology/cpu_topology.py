"""CPU topology of this node from sysfs. Source: spec/node-agent.md 1.2."""

import re
from pathlib import Path

from services.node_agent.qos_manager.strategies.cpu_selection import Processor
from services.node_agent.states_informer.annotations import cpus

_CPU = re.compile(r"cpu(\d+)").fullmatch
_NODE = re.compile(r"node(\d+)").fullmatch


def processors(sys_root: Path) -> tuple[Processor, ...]:
    """Returns the CPUs that are online; none when sysfs cannot be read.

    A core's number is unique only within its socket, so a core is identified by both.
    """
    base = sys_root / "devices/system"
    nodes: dict[int, int] = {}
    found = []
    try:
        for folder in (base / "node").iterdir() if (base / "node").is_dir() else ():
            if match := _NODE(folder.name):
                nodes |= dict.fromkeys(cpus((folder / "cpulist").read_text().strip()), int(match[1]))
        for folder in (base / "cpu").iterdir():
            topology = folder / "topology"
            if (match := _CPU(folder.name)) and topology.is_dir():
                cpu = int(match[1])
                socket = max(0, int((topology / "physical_package_id").read_text()))
                core = int((topology / "core_id").read_text())
                found.append(Processor(cpu, socket << 16 | core, socket, nodes.get(cpu, 0)))
    except (OSError, ValueError):
        return ()
    return tuple(sorted(found))
