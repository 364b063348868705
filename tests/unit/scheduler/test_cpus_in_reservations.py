"""CPUs and NUMA zones of Reservations: owners get those, nobody else does, and nothing counts twice.

Source: spec/scheduler-core.md 4.6, the reservation path.
"""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from shared.domain.cpu_set import parse_cpus
from shared.domain.reservation import PRE_ALLOCATED
from shared.events import RecordedEvent
from shared.events.scheduling import PlacementReserved, PodPlaced, ReservationUnschedulable
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import NUMA_LABEL, STATUS, bound_pod, holding_pod, machine, reported
from tests.support.reservations import live, observe, reservation
from tests.support.scheduling_world import World, placements, unschedulable

LSR = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
ANY = [{"labelSelector": {"matchLabels": {"koordinator.sh/qosClass": "LSR"}}}]


def world_of(*pods: Pod, **labels: str) -> World:
    world = World()
    world.believes_annotations = True
    world.observe(reported())
    world.add_node(machine(labels=labels))
    for each in pods:
        world.add_pod(each)
    world.read()
    return world


def hold(world: World, name: str, cpu: str, **spec: Any) -> frozenset[int]:
    """Returns the CPUs of a Reservation for pods with label `app: NAME`, once it is available."""
    more = {"allocateOnce": False, "metadata": {"labels": LSR}, **spec}
    observe(world, reservation(name, cpu, **more))
    world.read()
    records = world.cycles()
    live(world)
    held = [r.event for r in records if isinstance(r.event, PlacementReserved)]
    return allocation_of(held[0].annotations).cpus if held else frozenset()


def owner(name: str, cpus: int, of: str, bind: str = "", **more: Any) -> Pod:
    one = bound_pod(name, cpus, bind, **more)
    return with_label(one, of)


def with_label(one: Pod, app: str) -> Pod:
    metadata = msgspec.structs.replace(one.metadata, labels={**(one.metadata.labels or {}), "app": app})
    return msgspec.structs.replace(one, metadata=metadata)


def schedule(world: World, *pods: Pod) -> list[RecordedEvent]:
    for each in pods:
        world.add_pod(each)
    world.read()
    return world.cycles()


def cpus_of(records: list[RecordedEvent]) -> dict[str, str]:
    return {
        r.event.pod_uid: json.loads(r.event.annotations[STATUS])["cpuset"]
        for r in records
        if isinstance(r.event, PodPlaced)
    }


def test_an_owner_prefers_the_cpus_of_its_reservation() -> None:
    world = world_of(holding_pod("there", "4-7", "n"))
    assert hold(world, "web", "4") == parse_cpus("8-11")
    world.add_pod(holding_pod("more", "12-15", "n"))
    assert cpus_of(schedule(world, owner("a", 2, "web"), owner("b", 2, "web"), owner("c", 2, "web"))) == {
        "a": "8-9",
        "b": "10-11",
        "c": "0-1",
    }


def test_the_cpus_of_a_reservation_and_of_its_owners_count_once() -> None:
    world = world_of(holding_pod("there", "8-15", "n", {1: {"cpu": "8"}}), **{NUMA_LABEL: "SingleNUMANode"})
    assert hold(world, "web", "4") == parse_cpus("0-3")
    assert cpus_of(schedule(world, owner("a", 2, "web"))) == {"a": "0-1"}
    assert cpus_of(schedule(world, bound_pod("other", 4))) == {"other": "4-7"}
    assert cpus_of(schedule(world, owner("b", 2, "web"))) == {"b": "2-3"}


def test_an_owner_of_a_restricted_reservation_gets_no_other_cpus() -> None:
    for policy, expected in (("Restricted", {}), ("Aligned", {"b": "4-5"})):
        world = world_of(holding_pod("there", "8-15", "n"))
        assert hold(world, "web", "4", allocatePolicy=policy) == parse_cpus("0-3")
        assert cpus_of(schedule(world, owner("a", 2, "web", "SpreadByPCPUs"))) == {"a": "0,2"}
        records = schedule(world, owner("b", 2, "web", "FullPCPUs", required=True))
        assert cpus_of(records) == expected
        if not expected:
            assert unschedulable(records)["b"].message == (
                "0/1 nodes are available: 1 pod has a nominated reservation but cannot be allocated within its NUMA "
                "scope."
            )
        assert cpus_of(schedule(world, owner("c", 2, "web", "SpreadByPCPUs"))) == {"c": "1,3"}, "they are held still"


def test_an_owner_of_a_restricted_reservation_gets_no_amounts_of_another_zone() -> None:
    world = world_of(**{NUMA_LABEL: "SingleNUMANode"})
    assert hold(world, "web", "4", allocatePolicy="Restricted") == parse_cpus("0-3")
    world.add_pod(holding_pod("there", "4-7", "n", {0: {"cpu": "4"}}))
    records = schedule(world, owner("a", 4, "web"))
    assert cpus_of(records) == {"a": "0-3"}


def test_the_cpus_of_other_reservations_that_match_are_not_used() -> None:
    world = world_of()
    assert hold(world, "one", "4", owners=ANY) == parse_cpus("0-3")
    assert hold(world, "two", "4", owners=ANY) == parse_cpus("8-11")
    records = schedule(world, owner("a", 6, "x"))
    used = json.loads(
        next(r.event.annotations[RESERVATION_ALLOCATED] for r in records if isinstance(r.event, PodPlaced))
    )
    own, other = ("0-3", "8-11") if used["name"] == "one" else ("8-11", "0-3")
    taken = parse_cpus(cpus_of(records)["a"])
    assert taken > parse_cpus(own)
    assert not taken & parse_cpus(other)


def test_a_pod_that_no_reservation_is_for_gets_none_of_its_cpus() -> None:
    world = world_of()
    assert hold(world, "web", "12") == parse_cpus("0-11")
    assert cpus_of(schedule(world, bound_pod("other", 4))) == {"other": "12-15"}
    assert placements(schedule(world, bound_pod("none", 1))) == {}


def test_an_owner_that_is_gone_leaves_its_cpus_to_the_reservation() -> None:
    world = world_of()
    hold(world, "web", "4")
    assert cpus_of(schedule(world, owner("a", 4, "web"))) == {"a": "0-3"}
    world.drop_pod("a")
    assert cpus_of(schedule(world, bound_pod("other", 4))) == {"other": "8-11"}
    assert cpus_of(schedule(world, owner("b", 4, "web"))) == {"b": "0-3"}


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("hold", "own", "other", "drop")),
            st.sampled_from(("one", "two")),
            st.integers(1, 6),
            st.sampled_from(("", "Aligned", "Restricted")),
        ),
        max_size=12,
    ),
    st.sampled_from(("", "SingleNUMANode", "Restricted")),
)
def test_no_cpu_is_given_twice(steps: list[tuple[str, str, int, str]], numa: str) -> None:
    world = world_of(**({NUMA_LABEL: numa} if numa else {}))
    held: dict[str, frozenset[int]] = {}
    pods: dict[str, tuple[str, frozenset[int]]] = {}  # pod -> the Reservation that it uses, its CPUs
    for number, (step, name, cpus, policy) in enumerate(steps):
        uid = f"p{number}"
        if step == "hold":
            if name not in held and (found := hold(world, name, str(cpus), allocatePolicy=policy)):
                held[name] = found
        elif step == "drop":
            if pods:
                gone = sorted(pods)[cpus % len(pods)]
                del pods[gone]
                world.drop_pod(gone)
        else:
            one = owner(uid, cpus, name) if step == "own" else bound_pod(uid, cpus)
            for record in schedule(world, one):
                if isinstance(record.event, PodPlaced):
                    used = record.event.annotations.get(RESERVATION_ALLOCATED)
                    name_of = json.loads(used)["name"] if used else ""
                    pods[record.event.pod_uid] = name_of, allocation_of(record.event.annotations).cpus
        taken = [cpu for _, own in pods.values() for cpu in own]
        assert len(taken) == len(set(taken)), "each CPU has one pod"
        for name_of, own in pods.values():
            for reserved, reserved_cpus in held.items():
                assert name_of == reserved or not own & reserved_cpus, "reserved CPUs go to owners alone"


def test_a_reservation_that_takes_over_a_pod_holds_its_cpus_and_no_cpu_of_another_one() -> None:
    labels = {"app": "web"}
    world = world_of(*(with_label(holding_pod(name, cpus, "n"), "web") for name, cpus in (("a", "0-1"), ("b", "2-7"))))
    world.add_pod(with_label(holding_pod("other", "8-13", "n"), "x"))
    spec: dict[str, Any] = {
        "preAllocation": True,
        "allocatePolicy": "Restricted",
        "owners": [{"labelSelector": {"matchLabels": labels}}],
    }
    observe(world, reservation("r", "4", metadata={"labels": LSR}, allocateOnce=False, **spec))
    world.read()
    records = world.cycles()
    assert not [r.event.message for r in records if isinstance(r.event, ReservationUnschedulable)]
    held = [r.event for r in records if isinstance(r.event, PlacementReserved)]
    cpus = allocation_of(held[0].annotations).cpus
    assert len(cpus) == 4
    assert not cpus & parse_cpus("8-13")
    assert json.loads(held[0].annotations[PRE_ALLOCATED])[0][0] in ("a", "b")
    taken = json.loads(held[0].annotations[PRE_ALLOCATED])[0][0]
    assert not cpus & parse_cpus({"a": "2-7", "b": "0-1"}[taken]), "those of the pod that stays beside it"
