"""Many equal pods are placed as if one by one, whatever pods come between them and however full the nodes are."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.look_ahead_with_one_more_pod import MIN_PODS
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import RecordedEvent
from shared.events.scheduling import PodPlaced
from shared.kube.node import PodUsage, ResourceMap, Taint
from shared.kube.pod import Toleration
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import NUMA_LABEL, reported
from tests.support.scheduling_world import World, metric, node, placements, pod, thresholds, use


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
    for number in range(3 * MIN_PODS):
        cpu, priority, tolerant = kinds[0] if random.random() < 0.8 else kinds[1]
        tolerations = (Toleration(key="team", operator="Exists"),) if tolerant else ()
        ports = (80,) if random.random() < 0.1 else ()
        world.add_pod(pod(f"p{number:02}", cpu=cpu, priority=priority, tolerations=tolerations, ports=ports))
    world.read()
    return placements(world.cycles(batch=batch))


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.booleans())
def test_looking_ahead_changes_no_placement(seed: int, limits: bool) -> None:
    assert played(seed, 256, limits=limits) == played(seed, 1, limits=limits)


def crowd(seed: int, numa: float = 0) -> World:
    """Many equal pods for many nodes, so that runs form; reports have some of the pods already, and some nodes fill up soon.

    Args:
        numa: share of nodes with a NUMA policy, which no plugin predicts.
    """
    random, world = Random(seed), World()
    use_of = ResourceMap(resources={"cpu": "2", "memory": "1Gi"})
    for number in range(random.randrange(40, 100)):
        name = f"n{number:02}"
        cpu, pods = random.choice(("1", *("16",) * 9)), random.choice(("1", *("110",) * 9))
        labels = {}
        if random.random() < numa:
            labels[NUMA_LABEL] = random.choice(("SingleNUMANode", "Restricted", "BestEffort"))
            world.observe(reported(name, cpus=random.choice((2, 8)), memory="8Gi"))
        world.add_node(node(name, cpu=cpu, memory="16Gi", pods=pods, labels=labels))
        known = [f"p{each:02}" for each in range(100) if random.random() < 0.03]
        usages = [PodUsage(name=each, namespace="d", pod_usage=use_of) for each in known]
        if random.random() < 0.8:
            world.report(metric(name, cpu=f"{random.choice((500, 500, 500, 900))}m", pods=usages))
    names = [f"p{number:02}" for number in range(100)]
    random.shuffle(names)
    for at, name in enumerate(names):
        other = random.random() < 0.05
        world.add_pod(pod(name, cpu="2" if other else "500m", priority=9500 if at % 40 == 39 else None))
    world.read()
    return world


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_pods_that_run_on_go_where_their_turns_would_send_them(seed: int) -> None:
    assert placements(crowd(seed).cycles(batch=256)) == placements(crowd(seed).cycles(batch=1, most=300))


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from((0.03, 0.3, 0.7)))
def test_nodes_that_are_not_predicted_get_the_pods_of_their_turns(seed: int, numa: float) -> None:
    together, alone = crowd(seed, numa).cycles(batch=256), crowd(seed, numa).cycles(batch=1, most=300)
    assert placements(together) == placements(alone)
    assert scores(together) == scores(alone)


def scores(events: Sequence[RecordedEvent]) -> dict[str, int]:
    """Pod's uid -> its total."""
    return {each.event.pod_uid: each.event.score for each in events if isinstance(each.event, PodPlaced)}


@pytest.mark.parametrize("numa", [0, 0.1])
def test_equal_pods_do_run_on(monkeypatch: pytest.MonkeyPatch, numa: float) -> None:
    """Else the tests above show nothing."""
    runs: list[tuple[int, int]] = []
    plain = CycleTransaction.place_all

    def counted(
        transaction: CycleTransaction, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]
    ) -> int:
        runs.append((len(rows), found := plain(transaction, pods, pod_class, rows)))
        return found

    monkeypatch.setattr(CycleTransaction, "place_all", counted)
    for seed in range(20):
        crowd(seed, numa).cycles(batch=256)
    assert max(rows for rows, _ in runs) > MIN_PODS
    assert any(0 < found < rows for rows, found in runs), "of none did a report tell"


def test_many_equal_pods_with_a_host_port_take_one_node_each_although_no_port_is_in_use_yet() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.add_node(node(name, cpu="16", memory="16Gi"))
    for number in range(2 * MIN_PODS):
        world.add_pod(pod(f"p{number:02}", cpu="100m", ports=(443,)))
    world.read()
    assert sorted(placements(world.cycle()).values()) == ["a", "b", "c"]
