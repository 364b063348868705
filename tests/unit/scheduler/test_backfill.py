"""Backfill: pods pass a waiting gang only where its planned start does not move."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.expected_ends import ENDING_S
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events import RecordedEvent
from shared.events.scheduling import CycleDecided, PodPlaced, UnitStartPlanned
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import START_NS, World, node, placements, pod, unschedulable

GANG = "d/g"


def running(name: str, cpu: str, on: str, *, deadline_s: int | None = None, policy: str = "Never") -> Pod:
    """A pod that has run since the start of the world."""
    return timed(pod(name, cpu=cpu, memory=None, on=on, phase="Running"), deadline_s, policy, started=True)


def timed(each: Pod, deadline_s: int | None = None, policy: str = "Never", *, started: bool = False) -> Pod:
    spec = replace(each.spec, restart_policy=policy, active_deadline_seconds=deadline_s)
    status = replace(each.status, start_time=instant_text(START_NS)) if started else each.status
    return replace(each, spec=spec, status=status)


def gang_of(name: str, count: int, cpu: str, **more: Any) -> list[Pod]:
    annotations = {gang.NAME: name, gang.MINIMUM: str(count)}
    return [pod(f"{name}{number}", cpu=cpu, memory=None, annotations=annotations, **more) for number in range(count)]


def world_of(*pods: Pod, backfill: bool = True, **cpus: str) -> World:
    world = World(backfill=backfill)
    for name, cpu in cpus.items():
        world.add_node(node(name, cpu=cpu))
    add(world, *pods)
    return world


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def planned(records: Sequence[RecordedEvent]) -> list[UnitStartPlanned]:
    return [each.event for each in records if isinstance(each.event, UnitStartPlanned)]


def passes(records: Sequence[RecordedEvent]) -> dict[str, dict[str, str]]:
    return {each.event.pod_uid: each.event.passes for each in records if isinstance(each.event, PodPlaced)}


def kept_by(records: Sequence[RecordedEvent]) -> dict[str, int]:
    """Nodes that were kept for planned starts, by unit."""
    return {
        each.detail: each.nodes
        for record in records
        if isinstance(record.event, CycleDecided)
        for class_ in record.event.classes
        for each in class_.rejected
        if each.code == "StartPlanned"
    }


def test_without_the_setting_nothing_is_planned_and_small_pods_take_the_nodes() -> None:
    world = world_of(running("a", "3", "x"), *gang_of("g", 2, "2"), pod("small", memory=None), backfill=False, x="4")
    records = world.cycle()
    assert planned(records) == []
    assert placements(records) == {"small": "x"}
    assert passes(records) == {"small": {}}


def test_the_start_is_planned_where_the_fewest_pods_have_to_end() -> None:
    world = world_of(
        running("late", "3", "x", deadline_s=900),
        running("soon", "3", "y", deadline_s=300),
        running("never", "3", "z", policy="Always"),
        *gang_of("g", 2, "2"),
        x="4", y="4", z="4",
    )  # fmt: skip
    [start] = planned(world.cycle())
    assert (start.unit, start.reason, start.nodes) == (GANG, "Refused", {"g0": "y", "g1": "y"})
    assert start.waits_for == ("soon",)
    assert start.starts_ns == START_NS + (300 + ENDING_S) * SECOND
    assert planned(world.cycles()) == [], "it holds"


def test_pods_without_a_deadline_that_run_to_completion_end_at_an_unknown_time() -> None:
    world = world_of(running("a", "3", "x"), *gang_of("g", 2, "2"), x="4")
    [start] = planned(world.cycle())
    assert (start.waits_for, start.starts_ns) == (("a",), 0)


@pytest.mark.parametrize("cpu", ["3", "5"])
def test_no_start_is_planned_where_no_pod_is_expected_to_end_or_the_gang_is_too_large(cpu: str) -> None:
    world = world_of(
        running("a", "3", "x", policy="Always" if cpu == "3" else "Never"), *gang_of("g", 2, cpu), pod("small"), x="4"
    )
    records = world.cycle()
    assert planned(records) == []
    assert placements(records) == {"small": "x"}, "no start can move"


def test_a_pod_passes_on_another_node_or_where_it_fits_beside_the_gang() -> None:
    world = world_of(running("a", "6", "x", deadline_s=600), running("b", "3", "y", policy="Always"), x="8", y="4")
    add(world, *gang_of("g", 2, "3"))
    [start] = planned(world.cycle())
    assert start.nodes == {"g0": "x", "g1": "x"}
    add(world, *(pod(f"small{number}", cpu="1", memory=None) for number in range(4)))
    records = world.cycles()
    assert placements(records) == {"small0": "x", "small1": "y", "small2": "x"}
    assert passes(records) == {
        "small0": {GANG: "FitsBeside"},
        "small1": {GANG: "OtherNode"},
        "small2": {GANG: "FitsBeside"},
    }
    assert unschedulable(records)["small3"].code == "InsufficientResource"


def test_a_pod_that_would_delay_the_gang_waits_and_its_condition_names_the_gang() -> None:
    world = world_of(running("a", "3", "x", deadline_s=600), *gang_of("g", 2, "2"), x="4")
    world.cycle()
    add(world, pod("long", cpu="1", memory=None), timed(pod("short", cpu="1", memory=None), 300))
    records = world.cycle()
    assert passes(records) == {"short": {GANG: "EndsBefore"}}
    assert kept_by(records) == {GANG: 1}
    assert unschedulable(records)["long"].message == ("0/1 nodes are available: 1 kept for the planned start of d/g.")
    world.wait(10)
    add(world, timed(pod("too-long", cpu="100m", memory=None), 3600))
    assert placements(world.cycles()) == {}


def test_pods_of_higher_priority_and_those_that_came_before_are_not_restricted() -> None:
    world = world_of(running("a", "2", "x", deadline_s=600), x="4")
    add(world, pod("before", cpu="3", memory=None), *gang_of("g", 2, "2"))
    world.cycle()
    world.wait(15)
    add(world, pod("boss", cpu="2", memory=None, priority=100))
    records = world.cycles()
    assert placements(records) == {"boss": "x"}
    assert passes(records) == {"boss": {}}
    assert [each.reason for each in planned(world.cycles())] in ([], ["NoLongerFits"])


def test_the_start_is_planned_anew_when_a_pod_ahead_takes_its_node() -> None:
    world = world_of(running("a", "3", "x", deadline_s=600), running("b", "3", "y", deadline_s=900), x="4", y="4")
    add(world, *gang_of("g", 2, "2"))
    assert planned(world.cycle())[0].nodes == {"g0": "x", "g1": "x"}
    add(world, pod("boss", cpu="1", memory=None, priority=100, selector=None))
    assert placements(records := world.cycle()) == {"boss": "x"}
    assert planned(records) == []
    add(world, pod("later", cpu="1", memory=None))
    [start] = planned(world.cycles())
    assert (start.reason, set(start.waits_for)) == ("NoLongerFits", {"a", "b"})
    assert start.starts_ns == START_NS + (900 + ENDING_S) * SECOND


def test_the_gang_starts_when_the_pods_it_waits_for_have_ended_and_the_plan_ends_with_it() -> None:
    world = world_of(running("a", "3", "x"), *gang_of("g", 2, "2"), x="4")
    world.cycle()
    add(world, *(pod(f"small{number}", cpu="1", memory=None) for number in range(3)))
    assert placements(world.cycles()) == {}
    world.wait(60)
    world.drop_pod("a")
    world.read()
    assert placements(world.cycle()) == {"g0": "x", "g1": "x"}
    [end] = planned(world.cycles())
    assert (end.nodes, end.reason) == ({}, "NoLongerWaits")
    assert world.view.planned_starts == {}


def test_a_pod_that_was_kept_out_is_tried_again_when_the_planned_start_ends() -> None:
    world = world_of(running("a", "3", "x"), *gang_of("g", 2, "2"), x="4")
    world.cycle()
    add(world, pod("small", cpu="1", memory=None))
    assert placements(world.cycles()) == {}
    world.drop_pod("g0")
    world.read()
    world.cycles()
    world.wait(15)
    assert placements(world.cycles()) == {"small": "x"}


def test_a_gang_behind_another_one_passes_like_any_pod_and_has_a_planned_start_of_its_own() -> None:
    world = world_of(running("a", "3", "x"), running("b", "3", "y"), *gang_of("g", 2, "2"), x="4", y="4")
    first = planned(world.cycle())
    add(world, *gang_of("h", 2, "2"), *gang_of("i", 2, "500m"))
    records = world.cycles()
    [second] = planned(records)
    assert second.unit == "d/h"
    assert set(first[0].nodes.values()).isdisjoint(second.nodes.values())
    assert placements(records) == {}, "the small gang would delay one of them"
    assert kept_by(records).keys() <= {GANG, "d/h"}


def test_a_gang_without_nodes_beside_a_planned_start_has_its_own_once_that_one_has_ended() -> None:
    world = world_of(running("a", "3", "x"), *map(timed, gang_of("g", 2, "2")), *gang_of("h", 2, "2"), x="4")
    assert {start.unit for start in planned(world.cycles())} == {"d/g"}
    world.wait(60)
    world.drop_pod("a")
    world.read()
    placed = world.cycle()
    assert placements(placed) == {"g0": "x", "g1": "x"}
    for record in placed:
        if isinstance(record.event, PodPlaced):
            world.answer(record)
    world.read()
    starts = {start.unit: start.waits_for for start in planned(world.cycles()) if start.nodes}
    assert {unit: set(waits_for) for unit, waits_for in starts.items()} == {"d/h": {"g0", "g1"}}


def test_a_cycle_with_planned_starts_is_decided_again_from_its_record_and_from_a_snapshot() -> None:
    world = world_of(running("a", "3", "x", deadline_s=600), *gang_of("g", 2, "2"), x="4", y="1")
    world.cycle()
    add(world, pod("p", cpu="1", memory=None), timed(pod("q", cpu="1", memory=None), 60))
    copy = SchedulerState()
    copy.restore(world.view.encode())
    assert copy.planned_starts == world.view.planned_starts
    again = decide(CycleInputs(copy, config_of(copy).profiles, backfill=True), world.now_ns, 256)
    assert again == decide(world.indexed(), world.now_ns, 256)
    assert any(isinstance(each.event, PodPlaced) and each.event.passes for each in again)


class _Cluster:
    """A cluster in which gangs wait while small pods come without end; each pod runs for a time that nobody knows.

    Attributes:
        started: gangs that were placed.
        moved: units whose planned start no longer held.
    """

    def __init__(self, gangs: Sequence[tuple[int, int]], nodes: int, *, backfill: bool) -> None:
        self.started: set[str] = set()
        self.moved: set[str] = set()
        self._world = world_of(backfill=backfill, **{f"n{number}": "4" for number in range(nodes)})
        self._ends: dict[str, int] = {}  # uid -> step
        self._lengths: dict[str, int] = {}
        self._gangs = gangs

    def step(self, number: int, arrivals: Sequence[tuple[int, int]]) -> None:
        """Ends pods, lets small ones of (cpus, steps) come, and in one step the gangs; then decides."""
        for uid in [uid for uid, end in self._ends.items() if end <= number]:
            del self._ends[uid]
            self._world.drop_pod(uid)
        if number == GANGS_COME:  # no pod is ahead of them but those that run
            for uid in [uid for uid in self._lengths if uid not in self._ends]:
                self._world.drop_pod(uid)
        for name, (count, cpu) in enumerate(self._gangs if number == GANGS_COME else ()):
            add(self._world, *map(timed, gang_of(f"gang{name}-", count, str(cpu))))
        for place, (cpu, length) in enumerate(arrivals):
            self._lengths[f"s{number}-{place}"] = length
            add(self._world, timed(pod(f"s{number}-{place}", cpu=str(cpu), memory=None)))
        self._world.read()
        records = self._world.cycles()
        for record in records:
            if isinstance(record.event, PodPlaced):
                self._world.answer(record)
                uid = record.event.pod_uid
                self._ends[uid] = number + self._lengths.get(uid, 2)
                self.started.update((uid.partition("-")[0],) if uid.startswith("gang") else ())
        self.moved.update(each.unit for each in planned(records) if each.reason == "NoLongerFits")
        self._world.wait(30)


GANGS_COME = 2
LONGEST = 4
GANGS = st.lists(st.tuples(st.integers(2, 3), st.integers(2, 4)), min_size=1, max_size=2)
ARRIVALS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, LONGEST)), min_size=3, max_size=6)


@settings(max_examples=examples(40), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(GANGS, st.lists(ARRIVALS, min_size=16, max_size=16))
def test_no_gang_starves_behind_small_pods_that_come_without_end(
    gangs: list[tuple[int, int]], arrivals: list[list[tuple[int, int]]]
) -> None:
    """Small pods run for four steps at most, and gangs for two: a gang has started once all pods have ended that ran
    when its start was planned, and the gang before it. The start of the first one never moves.
    """
    cluster = _Cluster(gangs, 3, backfill=True)
    for number in range(GANGS_COME + len(gangs) * (LONGEST + 2) + 1):
        cluster.step(number, arrivals[number])
    assert cluster.started == {f"gang{number}" for number in range(len(gangs))}
    assert "d/gang0-" not in cluster.moved


def test_without_the_setting_such_a_gang_starves() -> None:
    cluster = _Cluster([(3, 4)], 3, backfill=False)
    for number in range(24):
        cluster.step(number, [(1, 4)] * 4)
    assert cluster.started == set()
