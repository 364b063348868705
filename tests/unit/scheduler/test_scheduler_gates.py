"""Feature gates of the scheduler, as far as they concern Reservations, and their record."""

import json

import pytest

from services.scheduler.settings import SchedulerSettings
from shared.domain.scheduler_gates import OMIT_NODE_LABELS, SKIP_FITS_NODE, BadGates, scheduler_gates
from shared.events import RecordedEvent
from shared.events.scheduling import PodPlaced
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.reservations import available, reservation
from tests.support.scheduling_world import World, node, placements, pod

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


def world_of(*gates: str) -> World:
    world = World()
    world.scheduler_gates = frozenset(gates)
    world.add_node(node("a", cpu="10", labels={"zone": "x"}))
    world.read()
    return world


def schedule(world: World, cpu: str = "1", **affinity: object) -> list[RecordedEvent]:
    annotations = {AFFINITY: json.dumps(affinity)} if affinity else {}
    world.add_pod(pod("p", cpu=cpu, memory=None, labels={"app": "web"}, annotations=annotations))
    world.read()
    return world.cycles()


@pytest.mark.parametrize(
    ("operator", "values", "with_labels", "without"),
    [
        ("In", ["x"], True, False),
        ("NotIn", ["x"], False, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
        ("NotIn", ["y"], True, True),
    ],
)
def test_labels_of_nodes_do_not_count_with_the_gate(
    operator: str, values: list[str], with_labels: bool, without: bool
) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    required = {"reservationSelectorTerms": [term]}
    for gates, expected in (((), with_labels), ((OMIT_NODE_LABELS,), without)):
        world = world_of(*gates)
        available(world, reservation("web", "4"), "a", allocatable={"cpu": "4"})
        records = schedule(world, requiredDuringSchedulingIgnoredDuringExecution=required)
        assert bool(placements(records)) == expected


def test_a_node_is_checked_where_several_reservations_match_also_with_the_gate() -> None:
    for gates in ((), (SKIP_FITS_NODE,)):
        world = world_of(*gates)
        owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
        for name in ("r1", "r2"):
            available(world, reservation(name, "4", owners=owners), "a", allocatable={"cpu": "4"})
        assert placements(schedule(world, "7")) == {}
    for gates in ((), (SKIP_FITS_NODE,)):
        world = world_of(*gates)
        available(world, reservation("web", "4"), "a", allocatable={"cpu": "4"})
        records = schedule(world, "10")
        used = [r.event.annotations.get(RESERVATION_ALLOCATED) for r in records if isinstance(r.event, PodPlaced)]
        assert used == ['{"name":"web","uid":"r-web"}'], "NodeResourcesFit checks the node in both"


def test_gates_are_recorded_in_one_order_and_unknown_ones_are_named() -> None:
    given = f"{SKIP_FITS_NODE}=true, {OMIT_NODE_LABELS}=TRUE,LazyReservationRestore=false"
    recorded = SchedulerSettings(feature_gates=given).decision_settings().feature_gates
    assert recorded == f"{OMIT_NODE_LABELS}=true,{SKIP_FITS_NODE}=true"
    assert scheduler_gates(recorded) == {OMIT_NODE_LABELS, SKIP_FITS_NODE}
    with pytest.raises(BadGates, match="there is no gate 'Other'; known are"):
        scheduler_gates("Other=true")
    with pytest.raises(BadGates, match="give OmitNodeLabelsForReservation=true or"):
        scheduler_gates(f"{OMIT_NODE_LABELS}=1")
