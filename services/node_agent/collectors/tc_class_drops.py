"""Packets that the kernel dropped in each class of traffic control, from `tc -s class show`.

It needs the program `tc`, and the classes of the gate TCNetworkQoS.
"""

import re

from services.node_agent.kernel.program_run import run_program
from services.node_agent.qos_manager.strategies.network_qos import MAJOR

_CLASS = re.compile(rf"class htb {MAJOR}:([0-9a-f]+) ")
_DROPPED = re.compile(r"\(dropped (\d+),")
RUNS_FOR_S = 2.0


def class_drops(interface: str, tc: tuple[str, ...] = ("tc",)) -> dict[int, int]:
    """Returns minor of a class -> packets dropped in it since it was created; empty when tc cannot tell."""
    done = run_program((*tc, "-s", "class", "show", "dev", interface), runs_for_s=RUNS_FOR_S)
    return {} if done.failure else parse_drops(done.output)


def parse_drops(text: str) -> dict[int, int]:
    """Returns minor -> packets dropped, from the output of tc; a class without the number is left out."""
    found: dict[int, int] = {}
    minor: int | None = None
    for line in text.splitlines():
        if line.startswith("class "):
            minor = int(match[1], 16) if (match := _CLASS.match(line)) else None
        elif minor is not None and (dropped := _DROPPED.search(line)):
            found.setdefault(minor, int(dropped[1]))
    return found
