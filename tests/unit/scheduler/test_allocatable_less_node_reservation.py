"""Node reservation: the examples of spec/scheduler-workloads.md 1.13."""

import pytest

from services.scheduler.state.allocatable_less_node_reservation import ANNOTATION, less_reserved
from tests.support.scheduling_world import World, node, placements, pod


@pytest.mark.parametrize(
    ("text", "cpu", "memory"),
    [
        ('{"resources":{"cpu":"2","memory":"4Gi"}}', "30", "60Gi"),
        ('{"reservedCPUs":"0-3","resources":{"cpu":"10"}}', "28", "64Gi"),
        ('{"reservedCPUs":"0-3","applyPolicy":"ReservedCPUsOnly"}', "32", "64Gi"),
        ('{"resources":{"cpu":"40"}}', "0", "64Gi"),
        ('{"resources":{"cpu":"2500m"},"reservedCPUs":"x"}', "29500m", "64Gi"),
        ("{", "32", "64Gi"),
        ('{"resources":{"cpu":"two"}}', "32", "64Gi"),
    ],
)
def test_what_is_reserved_is_taken_off(text: str, cpu: str, memory: str) -> None:
    trimmed = less_reserved(node("n", cpu="32", memory="64Gi", annotations={ANNOTATION: text}))
    assert trimmed.status.allocatable == {"cpu": cpu, "memory": memory, "pods": "110"}


def test_batch_resources_stay_and_an_untouched_node_is_the_same_object() -> None:
    batch = {"kubernetes.io/batch-cpu": "5000"}
    text = '{"resources":{"kubernetes.io/batch-cpu":"1000"}}'
    kept = less_reserved(node("n", extra=batch, annotations={ANNOTATION: text})).status.allocatable or {}
    assert kept["kubernetes.io/batch-cpu"] == "5000"
    plain = node("n")
    assert less_reserved(plain) is plain


def test_a_pod_goes_where_there_is_room_besides_what_is_reserved() -> None:
    world = World()
    world.add_node(node("kept", cpu="8", annotations={ANNOTATION: '{"resources":{"cpu":"7"}}'}))
    world.add_node(node("small", cpu="2"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    assert placements(world.cycles()) == {"p": "small"}
