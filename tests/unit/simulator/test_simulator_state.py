"""The fold: its snapshot, and its independence of the order in which contexts arrive."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.simulator.decide import DueObjects, decide
from services.simulator.state import SimulatorState
from shared.events import Cause
from shared.events.cluster import DesiredStateApplied, DesiredStateSuperseded
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.hypothesis_examples import examples
from tests.support.intents import anything
from tests.unit.simulator.simulated_world import World, node, pod, shuffled


def a_history() -> World:
    """A history with objects of each kind, open and finished intents, current and ended desired states."""
    world = World(nodes=3, pods=4, pods_after_s=0.0, pods_per_s=1.0, report_interval_s=60)
    world.create(node("n9"), pod("a"), pod("b"))
    uids = {key: one.metadata.uid for key, one in world.state.pods().items()}
    key = "default/a"
    world.append("scheduling", PodUnschedulable(pod_uid=uids[key], pod=key, cycle=1, code="x", message="x"))
    world.step()
    world.append("scheduling", PodPlaced(pod_uid=uids[key], pod=key, node="n9", cycle=2, request={"cpu": 500}))
    world.advance(1)
    for value in ("1", "2"):
        patch = {"metadata": {"labels": {"v": value}}}
        world.append("scheduling", FieldsDesired(resource="nodes", name="n9", fields="v", patch=patch))
        world.append("scheduling", FieldsDesired(resource="nodes", name="node-0001", fields="v", patch=patch))
        world.step()
    body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "spec": {}}
    world.append("scheduling", ObjectDesired(resource="nodeslos.slo.koordinator.sh", name="n9", body=body))
    world.append("descheduling", EvictionRequested(pod_uid=uids[key], pod=key, reason="hot"))
    world.step()
    world.request("delete", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}})
    world.advance(5)
    world.append(
        "scheduling", PodPlaced(pod_uid=uids["default/b"], pod="default/b", node="node-0000", cycle=3, request={})
    )
    return world


HISTORY = a_history()


def test_a_snapshot_holds_everything() -> None:
    restored = SimulatorState(anything)
    restored.restore(HISTORY.state.encode())
    assert restored.encode() == HISTORY.state.encode()
    assert restored.pods_on == HISTORY.state.pods_on
    later = HISTORY.now_ns + 120 * 10**9
    due = DueObjects(list(HISTORY.state.pods()), list(HISTORY.state.nodes()))
    assert decide(restored, [], due, HISTORY.settings, later) == decide(HISTORY.state, [], due, HISTORY.settings, later)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60))
def test_any_interleaving_of_the_contexts_ends_in_the_same_state(order: list[int]) -> None:
    state = SimulatorState(anything)
    for record in shuffled(HISTORY.logs, order):
        state.apply(record)
    assert state.encode() == HISTORY.state.encode()


def test_an_outcome_that_is_read_before_its_intent_ends_it() -> None:
    desired = FieldsDesired(resource="nodes", name="n1", fields="f", patch={})
    for outcomes, stands in (
        ([DesiredStateApplied], True),
        ([DesiredStateSuperseded], False),
        ([DesiredStateApplied, DesiredStateSuperseded], False),
    ):
        world = World()
        for outcome in outcomes:
            world.append("cluster", outcome(resource="nodes", name="n1", fields="f"), Cause("scheduling", 1))
        world.append("scheduling", desired)
        assert not any(world.state.open_intents.values())
        assert bool(world.state.desired_states) is stands
        assert not any(world.state.early_outcomes.values())


def test_a_step_without_work_appends_nothing() -> None:
    world = World(nodes=2)
    assert decide(world.state, [], DueObjects(), world.settings, world.now_ns).drafts == []
