"""Pods that no cycle tries, since their gang lacks pods or its PodGroup, get a condition that says so."""

from services.gateway.effects.pod_kubernetes_events import unschedulable_event
from services.scheduler.explain.explain_pod import explain
from services.scheduler.gangs.held_back_conditions import WAIT_NS, HeldBackConditions
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events.scheduling import PodUnschedulable
from shared.kube.instants import SECOND
from shared.runtime.declared_intents import declared_refusal
from tests.support.scheduling_world import World, node, placements, pod
from tests.unit.scheduler.test_gangs import member, pod_group


class Held(World):
    """A node with room for four pods, and the conditions as the service writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.add_node(node("a", cpu="4"))
        self.conditions = HeldBackConditions()

    def write(self, after_ns: int = 0) -> list[PodUnschedulable]:
        self.now_ns += after_ns
        cache = self.indexed()
        cache.settle()
        drafts = self.conditions.take(cache, cache.changed_gangs, self.now_ns)
        cache.changed_gangs.clear()
        self.append_drafts(drafts)
        return [draft.event for draft in drafts if isinstance(draft.event, PodUnschedulable)]

    def add_members(self, *names: str) -> None:
        for name in names:
            self.add_pod(member("job", name))
        self.read()


def test_pods_of_an_incomplete_gang_get_the_condition_once_it_has_waited_and_no_second_one() -> None:
    world = Held()
    pod_group(world, "job", 3)
    world.add_members("p0", "p1")
    assert world.write() == []
    assert world.conditions
    written = world.write(WAIT_NS)
    assert {event.pod: (event.code, event.message, event.attempt) for event in written} == {
        f"d/{name}": ("GangIncomplete", "it waits for pods of its gang: gang d/job has 2 of 3 pods", 0)
        for name in ("p0", "p1")
    }
    assert all(declared_refusal("scheduling", event) == "" for event in written)
    assert not world.conditions
    assert world.write(600 * SECOND) == []
    world.add_members("p2")
    assert placements(world.cycle()).keys() == {"p0", "p1", "p2"}
    assert world.write(WAIT_NS) == []


def test_members_that_are_created_one_after_the_other_within_the_wait_cost_no_write() -> None:
    world = Held()
    pod_group(world, "job", 2)
    world.add_members("p0")
    assert world.write() == []
    world.add_members("p1")
    assert placements(world.cycle()).keys() == {"p0", "p1"}
    assert world.write(WAIT_NS) == []
    assert not world.conditions


def test_a_pod_whose_pod_group_does_not_exist_gets_one_too_and_later_members_as_well() -> None:
    world = Held()
    world.add_members("p0")
    world.write()
    assert [event.code for event in world.write(WAIT_NS)] == ["GangUnknown"]
    world.add_members("p1")
    world.write()
    assert [event.pod for event in world.write(WAIT_NS)] == ["d/p1"]


def test_a_state_read_again_from_the_log_writes_nothing_twice() -> None:
    world = Held()
    pod_group(world, "job", 3)
    world.add_members("p0")
    world.write()
    assert world.write(WAIT_NS)
    again = SchedulerState()
    again.restore(world.view.encode())
    assert again.pods["p0"].condition_code == "GangIncomplete"


def test_the_history_and_the_kubernetes_event_say_that_no_cycle_tries_it() -> None:
    world = Held()
    pod_group(world, "job", 3)
    world.add_members("p0")
    world.write()
    [written] = world.write(WAIT_NS)
    records = [record for log in world.logs.values() for record in log]
    found = explain(records, "p0")
    assert found.status == "unschedulable"
    assert found.summary == "no cycle tries it: it waits for pods of its gang: gang d/job has 1 of 3 pods"
    event, _ = unschedulable_event(written, "", now_ns=world.now_ns)
    assert (event["reason"], event["count"]) == ("FailedScheduling", 1)


def test_a_pod_without_a_gang_gets_none() -> None:
    world = Held()
    world.add_pod(pod("big", cpu="9"))
    world.read()
    assert world.write(WAIT_NS) == []
