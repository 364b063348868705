"""The modules of services/scheduler that one pod passes through in a cycle: fewer of them are easier to follow.

A pod of a class that is evaluated already enters fewer than 15. The other limits are the present numbers, so that a
change does not raise them unnoticed.
"""

import sys
from types import FrameType
from typing import Any

import pytest

from services.scheduler.cycle.cycle import plan_cycle
from tests.support.scheduling_world import World, node, pod

FOLDER = "/services/scheduler/"


def modules_by_pod(cpu: str) -> list[set[str]]:
    """Returns the modules that each of three equal pods enters while it is scheduled."""
    world = World()
    for number in range(5):
        world.add_node(node(f"n{number}", cpu="8"))
    for number in range(3):
        world.add_pod(pod(f"p{number}", cpu=cpu))
    world.read()
    cache = world.indexed()
    plan_cycle(cache, world.now_ns, 256)  # what is computed once for a class or a node is there
    entered: list[set[str]] = []
    is_scheduling = False

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal is_scheduling
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if event not in {"call", "return"} or FOLDER not in path:
            return
        module = path.partition(FOLDER)[2]
        if (module, name) == ("cycle/cycle.py", "schedule"):
            is_scheduling = event == "call"
            if is_scheduling:
                entered.append(set())
        if is_scheduling and event == "call":
            entered[-1].add(module)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        plan_cycle(cache, world.now_ns, 256)
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize(("cpu", "new_class", "further"), [("1", 43, 14), ("99", 50, 9)], ids=["placed", "rejected"])
def test_one_pod_enters_few_modules(cpu: str, new_class: int, further: int) -> None:
    first, second, _ = modules_by_pod(cpu)
    print("new class", len(first), *sorted(first), sep="\n    ")
    print("further pod", len(second), *sorted(second), sep="\n    ")
    assert len(first) <= new_class
    assert len(second) <= further
