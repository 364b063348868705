"""Reservations that cannot be placed as they are written are found, with what is wrong."""

from cli.doctor.check_unread_objects import about_missing_nodes, about_rejected_reservations
from services.scheduler.explain.invalid_reservations import rejected_reservations
from shared.kube.instants import instant_text
from tests.support.reservations import available, observe, reservation
from tests.support.scheduling_world import START_NS, World, node, pod

_INN = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Inn", "values": ["a"]}]}}


def _world() -> World:
    world = World()
    world.add_node(node("n", cpu="8"))
    observe(world, reservation("amount", "many"))
    observe(world, reservation("life", ttl="1hour"))
    observe(world, reservation("shape", owners=[{"labelSelector": "app"}]))
    observe(world, reservation("sound"))
    available(world, reservation("used", owners=[_INN]), "n", allocatable={"cpu": "2"})
    observe(world, {**reservation("over", "many"), "status": {"phase": "Failed"}})
    world.read()
    return world


def test_they_are_found_with_what_is_wrong() -> None:
    found = {each.name: each for each in rejected_reservations(_world().view)}
    assert {name: each.node for name, each in found.items()} == {"amount": "", "life": "", "shape": "", "used": "n"}
    assert "many" in found["amount"].problem
    assert "1hour" in found["life"].problem
    assert found["shape"].problem == (
        "the object cannot be read: spec.owners[0].labelSelector: expected an object, got a string; correct the field"
    )
    assert {each.created for each in found.values()} == {instant_text(START_NS)}
    assert found["shape"].uid == "r-shape"


def test_doctor_names_the_first_ones() -> None:
    first, second, _, rest = about_rejected_reservations(list(rejected_reservations(_world().view)))
    assert first.what.startswith("Reservation amount is not placed: ")
    assert (first.severity, first.do) == ("warning", "correct it: `kubectl edit reservation amount`")
    assert second.what.startswith("Reservation life is not placed: ")
    assert rest.what == "1 more Reservation is rejected"
    simulated, *_ = about_rejected_reservations(list(rejected_reservations(_world().view)), simulated=True)
    assert simulated.do == "correct it: `koord dev patch reservation amount PATCH`"
    (used,) = about_rejected_reservations([each for each in rejected_reservations(_world().view) if each.node])
    assert used.what.startswith("Reservation used, on n, is for no pod: ")


def test_a_reservation_that_waits_for_a_first_node_is_not_counted_as_a_pod() -> None:
    world = World()
    observe(world, reservation("held"))
    world.add_pod(pod("web", cpu="1"))
    world.read()
    world.cycles()
    assert {each.name for each in world.view.pods.values() if each.attempts} == {"d/web", "held"}
    [found] = about_missing_nodes(world.view)
    assert found.what.endswith(", and 1 pod waits for one")
