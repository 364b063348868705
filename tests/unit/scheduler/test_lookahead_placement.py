"""Pods that all differ are placed, and recorded, as pods one by one would be, whatever comes between them."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.joint_placement_of_similar_classes import PredictedPlacement, VariantBatch
from services.scheduler.cycle.predict_placements_of_next_pods import MAX_PODS, MIN_PODS
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events import RecordedEvent
from shared.events.scheduling import ClassEvaluated, CycleDecided
from shared.kube.node import Taint
from shared.kube.pod import Toleration
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, metric, node, placements, pod, thresholds, use

Records = dict[str, ClassEvaluated]


def played(seed: int, batch: int, *, limits: bool) -> tuple[dict[str, str], Records]:
    """Few nodes, some closed to most pods; pods of two groups of request variants, some equal, some that fit nowhere."""
    random, world = Random(seed), World()
    if limits:
        use(world, thresholds(random.choice((45, 65)), 95))
    for number in range(random.randrange(3, 30)):
        name = f"n{number:02}"
        effect = random.choice(("NoSchedule", "PreferNoSchedule", "", "", "", ""))
        taints = (Taint(key="team", value="a", effect=effect),) if effect else ()
        pods = str(random.choice((2, 5, 110)))
        world.add_node(node(name, cpu=str(random.choice((2, 4, 16))), memory="16Gi", pods=pods, taints=taints))
        if random.random() < 0.8:
            world.report(metric(name, cpu=f"{random.randrange(100, 2000)}m"))
    for number in range(2 * MAX_PODS if seed % 5 == 0 else random.randrange(2 * MIN_PODS, MAX_PODS)):
        cpu = random.choice((number, 7 * number, 100, 20_000 if random.random() < 0.2 else 50 + number))
        tolerations = (Toleration(key="team", operator="Exists"),) if random.random() < 0.1 else ()
        ports = (80,) if random.random() < 0.03 else ()
        priority = 9500 if random.random() < 0.02 else None
        world.add_pod(pod(f"p{number:03}", cpu=f"{cpu}m", priority=priority, tolerations=tolerations, ports=ports))
    world.read()
    events = world.cycles(batch=batch, most=3 * MAX_PODS)
    return placements(events), records(events)


def records(events: Sequence[RecordedEvent]) -> Records:
    """Pod's uid -> how its class was evaluated, of pods that were placed and share that with no other."""
    found: Records = {}
    for recorded in events:
        if isinstance(event := recorded.event, CycleDecided):
            uses = Counter(each.class_index for each in event.pods)
            found |= {
                each.pod_uid: event.classes[each.class_index]
                for each in event.pods
                if each.node and uses[each.class_index] == 1
            }
    return found


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.booleans())
def test_looking_ahead_changes_no_placement_and_no_record(seed: int, limits: bool) -> None:
    (placed, recorded), (placed_alone, recorded_alone) = (
        played(seed, 256, limits=limits),
        played(seed, 1, limits=limits),
    )
    assert placed == placed_alone
    assert recorded == {uid: recorded_alone[uid] for uid in recorded}


def test_pods_that_differ_in_amounts_are_placed_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def spy(
        batch: VariantBatch, pod_classes: Sequence[PodClass], hashes: Sequence[np.uint64]
    ) -> list[PredictedPlacement]:
        found = place(batch, pod_classes, hashes)
        seen.append(len(found))
        return found

    place = VariantBatch.place
    monkeypatch.setattr(VariantBatch, "place", spy)
    world = World()
    for number in range(5):
        world.add_node(node(f"n{number}", cpu="16", memory="64Gi"))
    for number in range(MAX_PODS + 10):
        world.add_pod(pod(f"p{number:02}", cpu=f"{100 + number}m"))
    world.read()
    assert len(placements(world.cycles(batch=256))) == MAX_PODS + 10
    assert seen == [MAX_PODS, 10]
