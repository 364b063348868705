"""Many equal pods are placed as pods one by one would be, whatever else comes between them and however full the nodes are."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.foresight import WORTH_IT
from shared.kube.node import Taint
from shared.kube.pod import Toleration
from tests.unit.scheduler.scheduling_world import World, metric, node, placements, pod, thresholds, use


def played(seed: int, batch: int, *, limits: bool) -> dict[str, str]:
    """Few nodes and many pods of few classes, so that nodes are taken several times and fill up."""
    random, world = Random(seed), World()
    if limits:
        use(world, thresholds(random.choice((45, 65)), 95))
    for number in range(random.randrange(3, 30)):
        name = f"n{number:02}"
        taints = (Taint(key="team", value="a", effect="PreferNoSchedule"),) if random.random() < 0.3 else ()
        pods = str(random.choice((2, 5, 110)))
        world.add_node(node(name, cpu=str(random.choice((2, 4, 16))), memory="16Gi", pods=pods, taints=taints))
        if random.random() < 0.8:
            world.report(metric(name, cpu=f"{random.randrange(100, 2000)}m"))
    kinds = [
        (random.choice(("100m", "500m", "2")), random.choice((None, 9500)), random.random() < 0.3) for _ in range(2)
    ]
    for number in range(3 * WORTH_IT):
        cpu, priority, tolerant = kinds[0] if random.random() < 0.8 else kinds[1]
        tolerations = (Toleration(key="team", operator="Exists"),) if tolerant else ()
        ports = (80,) if random.random() < 0.1 else ()
        world.add_pod(pod(f"p{number:02}", cpu=cpu, priority=priority, tolerations=tolerations, ports=ports))
    world.read()
    return placements(world.rounds(batch=batch))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_looking_ahead_changes_no_placement(seed: int, limits: bool) -> None:
    assert played(seed, 256, limits=limits) == played(seed, 1, limits=limits)
