"""The README's commands name pods that the simulated cluster has."""

import re
from pathlib import Path

from services.simulator.generated_cluster import pod
from services.simulator.settings import SimulatorSettings

README = Path(__file__).parents[3] / "README.md"


def test_pods_whose_placement_is_explained_are_generated() -> None:
    generated = {f"default/{pod(number, SimulatorSettings()).metadata.name}" for number in range(20)}
    named = set(re.findall(r"^ *koord why pod (\S+/(?:web|batch)-\S+)", README.read_text(), re.MULTILINE))
    assert named, "the README explains a pod"
    assert named <= generated
