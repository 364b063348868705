"""Reservations: placed like pods, used by their owners, and capacity that is never bound twice."""

from typing import Any

import pytest

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import PlacementReleased, PlacementReserved, PodPlaced, ReservationUnschedulable
from shared.kube.instants import SECOND, instant_text
from tests.support.reservations import available, live, observe, reservation, status_of
from tests.support.scheduling_world import World, node, placements, pod, unschedulable, use
from tests.unit.scheduler.interleavings import assert_one_state, requested

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def world_of(**nodes: str) -> World:
    """Nodes by name, with their cpu."""
    world = World()
    for name, cpu in nodes.items():
        world.add_node(node(name, cpu=cpu))
    world.read()
    return world


def cpu_on(world: World, name: str) -> int:
    """Milli-cores that count on a node."""
    cache = world.indexed()
    cache.settle()
    return int(cache.table.requested[cache.table.rows[name], 0])


def used(records: list[RecordedEvent]) -> dict[str, str]:
    """Pod -> the annotation that names the Reservation that it uses."""
    events = (record.event for record in records)
    return {e.pod_uid: e.annotations.get(ALLOCATED, "") for e in events if isinstance(e, PodPlaced)}


def held(records: list[RecordedEvent]) -> dict[str, str]:
    """Reservation -> the node on which its capacity is held."""
    return {r.event.holder: r.event.node for r in records if isinstance(r.event, PlacementReserved)}


def test_a_reservation_is_placed_holds_capacity_and_is_used_by_its_owner() -> None:
    world = world_of(a="4")
    observe(world, reservation("web", "3"))
    world.read()
    assert held(world.cycle()) == {"web": "a"}
    live(world)
    assert status_of(world, "web")["phase"] == "Available"
    assert status_of(world, "web")["nodeName"] == "a"
    assert status_of(world, "web")["allocatable"] == {"cpu": "3"}
    world.add_pod(pod("other", cpu="2"))
    world.add_pod(pod("owner", cpu="2", labels={"app": "web"}))
    world.read()
    events = world.cycle()
    assert placements(events) == {"owner": "a"}
    assert used(events) == {"owner": '{"name":"web","uid":"r-web"}'}
    assert "other" in unschedulable(events)


def test_a_reservation_with_a_number_as_an_amount_is_placed() -> None:
    world = world_of(a="4")
    body = reservation("web")
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = 3
    observe(world, body)
    world.read()
    assert held(world.cycle()) == {"web": "a"}
    live(world)
    assert status_of(world, "web")["allocatable"] == {"cpu": "3"}


def test_its_owner_ends_a_reservation_of_one_pod_and_its_rest_is_free() -> None:
    world = world_of(a="4")
    available(world, reservation("web", "3"), "a", allocatable={"cpu": "3"})
    world.add_pod(pod("owner", cpu="2", labels={"app": "web"}))
    world.read()
    [placed] = [record for record in world.cycle() if isinstance(record.event, PodPlaced)]
    assert cpu_on(world, "a") == 3000
    world.answer(placed)
    world.add_pod(pod("owner", cpu="2", labels={"app": "web"}, on="a", phase="Running"))
    world.cache = None
    world.read()
    events = live(world)
    assert status_of(world, "web")["phase"] == "Succeeded"
    assert status_of(world, "web")["currentOwners"] == [{"namespace": "d", "name": "owner", "uid": "owner"}]
    assert status_of(world, "web")["allocated"] == {"cpu": "2"}
    assert any(isinstance(record.event, PlacementReleased) for record in events)
    assert requested(assert_one_state(world))["a"][1]["cpu"] == 2000


def test_a_reservation_for_several_pods_counts_with_what_is_left_of_it() -> None:
    world = world_of(a="8")
    available(world, reservation("web", "4", allocateOnce=False), "a", allocatable={"cpu": "4"})
    for number in range(3):
        world.add_pod(pod(f"p{number}", cpu="2", labels={"app": "web"}))
    world.read()
    events = world.cycle()
    assert len(used(events)) == 3
    assert all(used(events).values()), "the third uses the rest of the node, under the same Reservation"
    assert cpu_on(world, "a") == 6000
    world.add_pod(pod("other", cpu="3"))
    world.read()
    assert not placements(world.cycle())


def test_an_owner_that_requests_more_than_its_reservation_frees_nothing_of_the_node() -> None:
    world = world_of(a="8")
    available(world, reservation("web", "2", allocateOnce=False), "a", allocatable={"cpu": "2"})
    world.add_pod(pod("large", cpu="5", labels={"app": "web"}))
    world.read()
    assert len(placements(world.cycle())) == 1
    assert cpu_on(world, "a") == 5000
    world.add_pod(pod("other", cpu="4"))
    world.read()
    assert not placements(world.cycle())


def test_a_pod_uses_one_reservation_at_a_time() -> None:
    world = world_of(a="10")
    for name in ("r1", "r2"):
        body = reservation(name, "4", owners=[{"labelSelector": {"matchLabels": {"app": "web"}}}])
        available(world, body, "a", allocatable={"cpu": "4"})
    world.add_pod(pod("p7", cpu="7", labels={"app": "web"}))
    world.read()
    assert "Insufficient cpu by node" in unschedulable(world.cycle())["p7"].message
    world.add_pod(pod("p6", cpu="6", labels={"app": "web"}))
    world.read()
    assert used(world.cycle()) == {"p6": '{"name":"r1","uid":"r-r1"}'}
    assert cpu_on(world, "a") == 10_000


def test_a_restricted_reservation_is_no_larger_than_it_is() -> None:
    world = world_of(a="10")
    body = reservation("web", "4", allocatePolicy="Restricted")
    available(world, body, "a", allocatable={"cpu": "4"})
    affinity = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    world.add_pod(pod("p", cpu="5", labels={"app": "web"}, annotations=affinity))
    world.add_pod(pod("q", cpu="5", labels={"app": "web"}))
    world.read()
    events = world.cycle()
    assert "Reservation(s) Insufficient cpu" in unschedulable(events)["p"].message
    assert used(events) == {"q": ""}, "without an affinity it takes the rest of the node"


def test_a_pod_that_requires_a_reservation_goes_nowhere_else() -> None:
    world = world_of(a="8", b="8")
    affinity = {"scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector":{"team":"x"}}'}
    world.add_pod(pod("p", labels={"app": "web"}, annotations=affinity))
    world.read()
    assert "no reservations match reservation affinity" in unschedulable(world.cycle())["p"].message
    available(world, reservation("web", "2", metadata={"labels": {"team": "x"}}), "b", allocatable={"cpu": "2"})
    world.read()
    world.wait(11)
    assert placements(world.cycles()) == {"p": "b"}


def test_owners_by_object_and_by_controller_name_single_pods() -> None:
    world = world_of(a="8", b="8")
    available(
        world, reservation("one", owners=[{"object": {"name": "p1", "namespace": "d"}}]), "b", allocatable={"cpu": "2"}
    )
    for name in ("p0", "p1", "p2"):
        world.add_pod(pod(name, cpu="1"))
    world.read()
    found = used(world.cycle())
    assert {uid: bool(text) for uid, text in found.items()} == {"p0": False, "p1": True, "p2": False}
    assert_one_state(world)


def test_a_reservation_that_fits_nowhere_has_the_reason_in_its_status_and_is_tried_again() -> None:
    world = world_of(a="1")
    observe(world, reservation("web", "3"))
    world.read()
    [refused] = [r.event for r in world.cycle() if isinstance(r.event, ReservationUnschedulable)]
    assert "Insufficient cpu" in refused.message
    live(world)
    [condition] = status_of(world, "web")["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Scheduled", "False", "Unschedulable")
    world.add_node(node("b", cpu="4"))
    world.read()
    world.wait(2)
    assert held(world.cycles()) == {"web": "b"}


def test_a_field_that_cannot_be_used_is_named_in_the_status() -> None:
    world = world_of(a="8")
    observe(world, reservation("web", allocatePolicy="Strict"))
    world.read()
    assert not world.cycle()
    live(world)
    assert "spec.allocatePolicy is 'Strict'" in status_of(world, "web")["conditions"][0]["message"]


def test_the_table_of_expiry() -> None:
    def phase(ttl: str | None, expires_in_s: int | None, age_s: int, *, on_node: bool) -> str:
        world = world_of(a="8")
        now = world.now_ns
        spec: dict[str, Any] = {"ttl": ttl} if ttl else {}
        if expires_in_s is not None:
            spec["expires"] = instant_text(now + expires_in_s * SECOND)
        body = reservation("web", created_ns=now - age_s * SECOND, **spec)
        available(world, body, "a", allocatable={"cpu": "2"}) if on_node else observe(world, body)
        world.read()
        live(world)
        return str(status_of(world, "web").get("phase", "Pending"))

    day, hour = 86_400, 3600
    assert phase("24h", None, day, on_node=True) == "Available"
    assert phase("24h", None, day + 1, on_node=True) == "Failed"
    assert phase("24h", None, 2 * day, on_node=False) == "Pending"
    assert phase("0", -hour, 2 * day, on_node=True) == "Available"
    assert phase("24h", -1, hour, on_node=True) == "Failed"


def test_an_expired_reservation_frees_its_capacity_and_is_deleted_a_day_later_also_when_it_is_created_anew() -> None:
    world = world_of(a="4")
    available(world, reservation("web", "3", ttl="1h", created_ns=world.now_ns), "a", allocatable={"cpu": "3"})
    world.add_pod(pod("p", cpu="2"))
    world.read()
    assert not placements(world.cycle())
    world.wait(3601)
    live(world)
    assert status_of(world, "web")["phase"] == "Failed"
    assert placements(world.cycles()) == {"p": "a"}
    observe(world, reservation("web", "1", uid="again", created_ns=world.now_ns))
    world.read()
    assert held(world.cycles()) == {"web": "a"}
    live(world)
    assert status_of(world, "web")["phase"] == "Available"
    world.wait(2 * 86_400)
    live(world)
    world.wait(2 * 86_400)
    live(world)
    assert not world.view.objects["reservations.scheduling.koordinator.sh"]


def test_a_status_and_the_end_of_its_reservation_are_folded_in_any_order() -> None:
    world = world_of(a="4")
    observe(world, reservation("web", "3", uid="first"))
    world.read()
    world.cycle()
    live(world)
    world.observe(ObjectDeleted(resource=RESERVATIONS, name="web", uid="first"))
    world.read()
    state = assert_one_state(world)
    state.encode()
    assert not state.reservation_statuses
    observe(world, reservation("web", "5", uid="second"))
    world.read()
    world.cycle()
    live(world)
    assert assert_one_state(world).reservation_statuses["web"].uid == "second"


def test_a_lost_node_ends_its_reservation() -> None:
    world = world_of(a="4")
    available(world, reservation("web", "3", created_ns=world.now_ns), "a", allocatable={"cpu": "3"})
    world.drop_node("a")
    world.read()
    live(world)
    assert not world.view.objects["reservations.scheduling.koordinator.sh"], "it failed, and its node is gone"


def test_the_smallest_order_comes_first() -> None:
    world = world_of(a="16")
    for name, order in (("r1", "10"), ("r2", "0"), ("r3", "3")):
        body = reservation(
            name, "4", owners=[{}],
            metadata={"labels": {"scheduling.koordinator.sh/reservation-order": order}},
        )  # fmt: skip
        available(world, body, "a", allocatable={"cpu": "4"})
    world.add_pod(pod("p", cpu="2"))
    world.read()
    assert used(world.cycle()) == {"p": '{"name":"r3","uid":"r-r3"}'}


def test_a_pod_with_a_forged_mark_of_a_reserve_pod_is_a_pod() -> None:
    world = world_of(a="4")
    world.add_pod(pod("p", annotations={"internal.koordstream/reservation-placement": "/"}))
    world.read()
    assert placements(world.cycle()) == {"p": "a"}


def test_an_owner_is_not_evicted_for_capacity_that_its_reservation_would_hold_again() -> None:
    world = world_of(a="4")
    world.believes_annotations = True
    available(world, reservation("web", "3", allocateOnce=False), "a", allocatable={"cpu": "3"})
    mark = {ALLOCATED: '{"name":"web","uid":"r-web"}'}
    world.add_pod(pod("owner", cpu="2", priority=1, labels={"app": "web"}, on="a", phase="Running", annotations=mark))
    world.add_pod(pod("p", cpu="2", priority=100))
    world.read()
    assert not [e for e in world.cycle() if e.event.type_name().endswith("EvictionRequested.v1")]


def test_an_owner_whose_selector_cannot_be_read_makes_the_whole_reservation_invalid() -> None:
    world = world_of(a="4")
    wrong = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}}
    observe(world, reservation("web", owners=[{}, wrong]))
    world.read()
    assert not world.cycle()
    live(world)
    message = status_of(world, "web")["conditions"][0]["message"]
    assert message.startswith("spec.owners[1].labelSelector: 'Like' is no operator")


def test_an_available_reservation_whose_owners_break_keeps_its_capacity_and_admits_nobody() -> None:
    world = world_of(a="4")
    broken = [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Bad"}]}}]
    available(world, reservation("web", "3"), "a", allocatable={"cpu": "3"})
    world.read()
    assert cpu_on(world, "a") == 3000
    available(world, reservation("web", "3", owners=broken), "a", allocatable={"cpu": "3"})
    world.add_pod(pod("owner", cpu="2", labels={"app": "web"}))
    world.read()
    assert cpu_on(world, "a") == 3000
    assert "owner" in unschedulable(world.cycle())


def test_cpus_that_a_reservation_keeps_by_number_are_not_used() -> None:
    world = world_of(a="4")
    kept = {"annotations": {"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'}}
    body = reservation("web", "4", metadata=kept, allocatePolicy="Restricted")
    available(world, body, "a", allocatable={"cpu": "4"})
    world.add_pod(pod("large", cpu="3", labels={"app": "web"}))
    world.read()
    assert "large" in unschedulable(world.cycle())
    world.add_pod(pod("small", cpu="2", labels={"app": "web"}))
    world.read()
    assert placements(world.cycle()) == {"small": "a"}


def test_a_host_port_of_a_reservation_is_free_for_its_owners_and_for_one_of_them() -> None:
    world = world_of(a="8")
    with_port = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    body = reservation("web", template=with_port, allocateOnce=False)
    available(world, body, "a", allocatable={"cpu": "4"})
    world.add_pod(pod("other", cpu="1", ports=(80,)))
    world.read()
    assert "other" in unschedulable(world.cycle())
    for name in ("first", "second"):
        world.add_pod(pod(name, cpu="1", ports=(80,), labels={"app": "web"}))
    world.read()
    events = world.cycle()
    assert placements(events) == {"first": "a"}
    assert "free ports" in unschedulable(events)["second"].message


@pytest.mark.parametrize("is_enabled", [False, True])
def test_pods_of_lower_priority_are_evicted_for_a_reservation_where_the_configuration_permits_it(
    is_enabled: bool,
) -> None:
    world = world_of(a="4")
    if is_enabled:
        args = "  pluginConfig:\n  - {name: Reservation, args: {enablePreemption: true}}\n"
        use(world, DEFAULT_PROFILE.replace("  pluginConfig:\n", args))
    world.add_pod(pod("low", cpu="3", priority=1, on="a", phase="Running"))
    other = reservation("held", "1", owners=[{"labelSelector": {"matchLabels": {"app": "x"}}}])
    available(world, other, "a", allocatable={"cpu": "1"})
    observe(world, reservation("web", "2", template={"priority": 10}))
    world.read()
    events = [record.event for record in world.cycle()]
    evicted = [event.pod_uid for event in events if isinstance(event, EvictionRequested)]
    assert evicted == (["low"] if is_enabled else [])
    assert not any(isinstance(event, FieldsDesired) for event in events), "a reserve pod has no object"
    if is_enabled:
        world.drop_pod("low")
        world.now_ns += 60 * SECOND
        world.read()
        assert held(world.cycle()) == {"web": "a"}
