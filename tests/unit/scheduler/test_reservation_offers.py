"""Offers of nodes with Reservations: from arrays as from evaluating one node after the other."""

import json
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.plugins.reservation import offers_as_arrays
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import offer_of
from shared.domain.reservation import ORDER, RESTRICTED
from shared.domain.scheduler_gates import SKIP_FITS_NODE
from shared.events import Event
from shared.events.scheduling import PodPlaced
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.hypothesis_examples import examples
from tests.support.reservations import available, reservation
from tests.support.scheduling_world import World, node, placements, pod

Json = dict[str, Any]
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
_sizes = st.integers(0, 4)
_reservations = st.fixed_dictionaries(
    {
        "on": st.integers(0, 2),
        "app": st.sampled_from("aab"),
        "cpu": st.integers(1, 5),
        "memory": _sizes,
        "pods": st.sampled_from((0, 0, 1, 2)),
        "order": st.sampled_from(("", "", "0", "1", "2", "-1", "x")),
        "inner": st.sampled_from((0, 0, 1, 2)),
        "restricted": st.booleans(),
        "options": st.sampled_from(([], [], ["cpu"], ["memory"])),
        "once": st.booleans(),
    }
)
_pods = st.fixed_dictionaries(
    {
        "app": st.sampled_from("aaabc"),
        "cpu": st.sampled_from((0, 1, 2, 3)),
        "memory": _sizes,
        "affinity": st.sampled_from(("", "", "{}", '{"name":"r0"}')),
        "ignored": st.sampled_from((False, False, False, True)),
    }
)


def _reservation(number: int, drawn: Mapping[str, Any]) -> Json:
    notes = {}
    if drawn["inner"]:
        notes["node.koordinator.sh/reservation"] = json.dumps({"resources": {"cpu": str(drawn["inner"])}})
    if drawn["options"]:
        notes["scheduling.koordinator.sh/reservation-restricted-options"] = json.dumps({"resources": drawn["options"]})
    more: Json = {"allocatePolicy": RESTRICTED} if drawn["restricted"] else {}
    return reservation(
        f"r{number}",
        str(drawn["cpu"]),
        owners=[{"labelSelector": {"matchLabels": {"app": drawn["app"]}}}],
        metadata={"labels": {ORDER: drawn["order"]} if drawn["order"] else {}, "annotations": notes},
        requests={"memory": f"{drawn['memory']}Gi"} if drawn["memory"] else None,
        allocateOnce=drawn["once"],
        **more,
    )


def _records(cpus: list[int], held: list[Json], waiting: list[Json], batch: int, gates: frozenset[str]) -> list[Event]:
    """Returns all events of the cycles that place the pods."""
    world = World()
    world.scheduler_gates = gates
    for number, cpu in enumerate(cpus):
        world.add_node(node(f"n{number}", cpu=str(cpu), memory="8Gi", pods="6"))
    for number, drawn in enumerate(held):
        amounts = {"cpu": str(drawn["cpu"])} | ({"memory": f"{drawn['memory']}Gi"} if drawn["memory"] else {})
        amounts |= {"pods": str(drawn["pods"])} if drawn["pods"] else {}
        available(world, _reservation(number, drawn), f"n{drawn['on'] % len(cpus)}", allocatable=amounts)
    for number, drawn in enumerate(waiting):
        labels = {"app": drawn["app"]}
        if drawn["ignored"]:
            labels["scheduling.koordinator.sh/reservation-ignored"] = "true"
        world.add_pod(
            pod(
                f"p{number}",
                cpu=str(drawn["cpu"]) if drawn["cpu"] else None,
                memory=f"{drawn['memory']}Gi" if drawn["memory"] else None,
                labels=labels,
                annotations={AFFINITY: drawn["affinity"]} if drawn["affinity"] else None,
            )
        )
    world.read()
    return [record.event for record in world.cycles(batch)]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.integers(4, 12), min_size=1, max_size=3),
    st.lists(_reservations, min_size=1, max_size=5),
    st.lists(_pods, min_size=1, max_size=8),
    st.sampled_from((1, 3, 64)),
    st.sampled_from((frozenset[str](), frozenset((SKIP_FITS_NODE,)))),
)
def test_arrays_decide_and_record_as_one_node_after_the_other(
    cpus: list[int], held: list[Json], waiting: list[Json], batch: int, gates: frozenset[str]
) -> None:
    found = _records(cpus, held, waiting, batch, gates)
    with patch.object(offers_as_arrays, "LARGEST", -1):  # no amount is small enough for arrays
        assert found == _records(cpus, held, waiting, batch, gates)


def _uses(held: list[Json], cpu: int, policy: str = "") -> str | None:
    """Returns the Reservation that a pod uses on a node of 8 cores with these; empty for none, None without a node."""
    world = World()
    world.add_node(node("n", cpu="8"))
    more: Json = {"allocatePolicy": policy} if policy else {}
    for number, each in enumerate(held):
        owners = [{"labelSelector": {"matchLabels": {"app": "a"}}}]
        available(world, reservation(f"r{number}", owners=owners, allocateOnce=False, **more, **each), "n")
    world.add_pod(pod("p", cpu=str(cpu), memory=None, labels={"app": "a"}))
    world.read()
    placed = next((each.event for each in world.cycles() if isinstance(each.event, PodPlaced)), None)
    if placed is None:
        return None
    text = placed.annotations.get(RESERVATION_ALLOCATED)
    return json.loads(text)["name"] if text else ""


_INNER = {"metadata": {"annotations": {"node.koordinator.sh/reservation": '{"resources":{"cpu":"2"}}'}}}


@pytest.mark.parametrize(
    ("held", "cpu", "policy", "expected"),
    [
        pytest.param([{"cpu": "4"}, {"cpu": "4"}], 1, "", "r0", id="the first of equal scores"),
        pytest.param([{"cpu": "4"}, {"cpu": "2"}], 1, "", "r1", id="the one that becomes fullest"),
        pytest.param([{"cpu": "4"}, {"cpu": "2"}], 4, "", "r0", id="what exceeds a resource scores 0"),
        pytest.param([{"cpu": "4", **_INNER}], 6, "", "r0", id="what no owner may use is held"),
        pytest.param([{"cpu": "4", **_INNER}], 7, "", None, id="and is not for the pod"),
        pytest.param([{"cpu": "4"}, {"cpu": "4"}], 5, "", None, id="the other one is held"),
        pytest.param([{"cpu": "4"}], 5, RESTRICTED, None, id="no more than it has"),
        pytest.param([{"cpu": "3"}], 5, RESTRICTED, "", id="beside it without it"),
        pytest.param([{"cpu": "4", **_INNER}], 3, RESTRICTED, "", id="less what no owner may use"),
    ],
)
def test_the_reservation_that_a_pod_uses(held: list[Json], cpu: int, policy: str, expected: str | None) -> None:
    assert _uses(held, cpu, policy) == expected
    with patch.object(offers_as_arrays, "LARGEST", -1):
        assert _uses(held, cpu, policy) == expected


def test_amounts_that_no_array_can_have_are_evaluated_too() -> None:
    world = World()
    world.add_node(node("n", cpu="8"))
    body = reservation("web", "4", allocateOnce=False)
    available(world, body, "n", allocatable={"cpu": "4", "example.com/vast": str(1 << 60)})
    world.add_pod(pod("p", cpu="1", memory=None, labels={"app": "web"}, annotations={AFFINITY: "{}"}))
    world.read()
    with patch("services.scheduler.plugins.reservation.plugin.offer_of", wraps=offer_of) as evaluated:
        assert placements(world.cycles()) == {"p": "n"}
    assert evaluated.called


def test_an_order_that_is_no_int64_is_none() -> None:
    labels = {"metadata": {"labels": {ORDER: "99999999999999999999"}}}
    assert _uses([{"cpu": "4", **labels}, {"cpu": "2"}], 1) == "r1"
