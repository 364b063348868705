"""Volumes of Reservations: they are prepared before a Reservation is available, and are free for its owners."""

from typing import Any

from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.events import RecordedEvent
from shared.events.scheduling import PlacementReleased, PlacementReserved
from tests.support.reservations import live, observe, reservation, status_of
from tests.support.scheduling_world import World, placements, pod, unschedulable
from tests.unit.scheduler.test_volumes import (
    CSI_NODES,
    SELECTED,
    add,
    claim,
    has,
    storage_class,
    volume,
    with_claims,
    world_of,
    written,
)


def with_claim(name: str, claim_name: str, **spec: Any) -> dict[str, Any]:
    """Returns a Reservation whose template has a claim."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    body = reservation(name, "1", template={"volumes": volumes}, **spec)
    body["spec"]["template"]["metadata"] = {"namespace": "d"}
    return body


def held(records: list[RecordedEvent]) -> list[tuple[str, str, str]]:
    events = (r.event for r in records)
    return [(e.kind, e.holder, e.waits_for) for e in events if isinstance(e, PlacementReserved)]


def released(records: list[RecordedEvent]) -> list[tuple[str, str]]:
    return [(r.event.kind, r.event.holder) for r in records if isinstance(r.event, PlacementReleased)]


def test_a_claim_of_one_pod_is_free_for_the_owner_and_for_no_other_pod() -> None:
    world = world_of("a")
    volume(world, "pv", accessModes=["ReadWriteOncePod"])
    claim(world, "c", "pv", modes=["ReadWriteOncePod"])
    observe(world, with_claim("web", "c", allocateOnce=False))
    world.read()
    assert held(world.cycles()) == [("Reservation", "web", "owners")]
    live(world)
    add(world, with_claims(pod("other"), "c"))
    assert unschedulable(world.cycles())["other"].code == "ClaimInUse"
    add(world, with_claims(pod("owner", labels={"app": "web"}), "c"))
    assert placements(world.cycles()) == {"owner": "a"}
    add(world, with_claims(pod("second", labels={"app": "web"}), "c"))
    assert unschedulable(world.cycles())["second"].code == "ClaimInUse"


def test_an_attached_volume_of_a_reservation_counts_once_with_its_owner() -> None:
    world = world_of("a")
    has(world, CSI_NODES, "a", spec={"drivers": [{"name": "csi.x", "allocatable": {"count": 1}}]})
    for number in range(2):
        volume(world, f"pv{number}", csi={"driver": "csi.x", "volumeHandle": f"h{number}"})
        claim(world, f"c{number}", f"pv{number}")
    observe(world, with_claim("web", "c0", allocateOnce=False))
    world.read()
    world.cycles()
    live(world)
    add(world, with_claims(pod("other"), "c1"))
    assert unschedulable(world.cycles())["other"].code == "TooManyVolumes"
    add(world, with_claims(pod("owner", labels={"app": "web"}), "c1"))
    assert placements(world.cycles()) == {"owner": "a"}, "it takes the place of the volume that is held"


def waiting_world() -> World:
    world = world_of("a")
    storage_class(world, "wait")
    claim(world, "c", class_="wait")
    observe(world, with_claim("web", "c"))
    world.read()
    records = world.cycles()
    assert held(records) == [("Reservation", "web", "volumes")]
    assert written(records) == {"d/c": {"metadata": {"annotations": {SELECTED: "a"}}}}
    live(world)
    assert "phase" not in status_of(world, "web"), "its volumes are being prepared"
    return world


def test_a_reservation_is_available_once_its_volumes_are_bound() -> None:
    world = waiting_world()
    add(world, pod("other", cpu="4"))
    assert placements(world.cycles()) == {}, "the node is held"
    volume(world, "v", "a")
    claim(world, "c", "v", class_="wait")
    world.read()
    assert held(world.cycles()) == [("Reservation", "web", "owners")]
    live(world)
    assert status_of(world, "web")["phase"] == "Available"
    add(world, with_claims(pod("owner", cpu="1", labels={"app": "web"}), "c"))
    assert placements(world.cycles()) == {"owner": "a"}


def test_a_reservation_whose_volume_cannot_be_provisioned_is_tried_again() -> None:
    world = waiting_world()
    claim(world, "c", class_="wait", metadata={"annotations": {SELECTED: "a"}})
    claim(world, "c", class_="wait")
    world.read()
    assert released(world.cycle()) == [("Reservation", "web")]
    live(world)
    assert status_of(world, "web").get("phase") != "Available"
    world.wait(1)
    assert held(world.cycles()) == [("Reservation", "web", "volumes")]
    assert world.view.objects[RESERVATIONS]["web"]["metadata"]["uid"] == "r-web"
