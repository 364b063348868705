"""A service that answers requests does not notice batch pods beside it, as long as best effort is held to what is left."""

from pathlib import Path
from statistics import median

import pytest

from cli.dev.node.node import RealNode
from tests.node.latency import COLOCATED, Pace, measured, service_in
from tests.node.system import site

EXAMPLES = Path(__file__).parents[2] / "k8s" / "examples"
SPACE = "beside"
WEIGHT = 8 * 1024
"""Shares of the node's cgroup against 1024 of each process beside it."""


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_service_next_to_batch_pods_that_are_held_answers_as_if_it_were_alone(
    real_node: RealNode, tmp_path: Path
) -> None:
    """Three runs of three turns each. A turn compares what it measured within a minute; of a run the turn in the middle counts.

    What else this machine does counts little, but it must leave cpu idle: else nothing is quiet.
    """
    real_node.cluster.create_namespace(SPACE, COLOCATED)
    real_node.cluster.apply(EXAMPLES / "colocation-profile.yaml")
    async with site(real_node, tmp_path) as there:
        service = await service_in(there, SPACE)
        (real_node.tree.folder("cpu") / "cpu.shares").write_text(str(WEIGHT))
        runs = [[await measured(service, Pace(20)) for _ in range(3)] for _ in range(3)]
    ratios = [
        [median(turn[name]["p99_us"] / turn["quiet"]["p99_us"] for turn in turns) for name in ("held", "free")]
        for turns in runs
    ]
    print(ratios)
    for held, free in ratios:
        assert held <= 1.2, ratios
        assert free >= 1.5, ratios
