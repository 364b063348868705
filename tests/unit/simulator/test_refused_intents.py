"""Intents that their context may not carry, in the simulated cluster."""

from services.simulator.state import SimulatorState
from shared.events.cluster import IntentRefused
from shared.events.intents import FieldsDesired
from tests.unit.simulator.simulated_world import World


def test_an_intent_that_its_context_does_not_declare_is_refused_and_never_in_force() -> None:
    world = World()
    world.state = SimulatorState()
    world.request("create", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    patch = {"metadata": {"labels": {"node.koordinator.sh/load": "high"}}}
    event = FieldsDesired(resource="nodes", name="n1", fields="load", patch=patch)
    (refused,) = world.intend(event, context="metrics-0")
    assert isinstance(refused, IntentRefused)
    assert not world.state.desired_states
    assert not any(world.state.open_intents.values())
    (applied,) = world.intend(event, context="slo")
    assert not isinstance(applied, IntentRefused)
