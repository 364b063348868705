"""The shortest part of a plan that still breaks the same invariant: delta debugging (Zeller's ddmin) over its steps."""

import re
from collections.abc import Callable

from cli.dev.fault_simulation.plan import Plan

MOST_RUNS = 300

_VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]+|\d+(\.\d+)?|(?<=/)[\w.-]+")


def signature(violation: str) -> str:
    """Returns the text of a violation without its numbers and names, which vary with the plan."""
    return _VARIES.sub("", violation)


def shrunk(plan: Plan, breaks: Callable[[Plan], bool], most_runs: int = MOST_RUNS) -> Plan:
    """Returns a plan from which no step can be removed, or the shortest that was found within so many runs.

    Args:
        breaks: runs a plan, and reports whether it still breaks the invariant; the whole plan does.
    """
    runs, parts = 0, 2
    while len(plan) >= 2 and runs < most_runs:
        size = -(-len(plan) // parts)
        for start in range(0, len(plan), size):
            runs += 1
            without = plan[:start] + plan[start + size :]
            if breaks(without):
                plan, parts = without, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(plan))
    return plan
