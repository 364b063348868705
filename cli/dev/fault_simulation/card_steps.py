"""The steps of cards: agents begin to report them, they fail, and people change Devices."""

from collections.abc import Callable, Mapping
from functools import partial

from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.world import World
from shared.kube import resource_names


def _add_devices(world: World, _step: Step) -> None:
    """Lets the agents of the nodes that there are report their cards."""
    for name in list(world.api.objects["nodes"]):
        world.report_devices(name)


def _fail_card(world: World, step: Step) -> None:
    """Lets a card fail, vanish, or be replaced, for a while."""
    cards = world.cards.get(step.target)
    if cards is not None:
        cards.failed[step.number] = step.what
        world.later(step.for_s, partial(cards.failed.pop, step.number, None))


def _edit_device(world: World, step: Step) -> None:
    """Lets somebody write into a Device that all of its cards are healthy."""
    device = world.api.objects[resource_names.DEVICES].get(step.target)
    if device is not None:
        cards = [{**card, "health": True} for card in device["spec"]["devices"]]
        world.api.put(resource_names.DEVICES, step.target, {**device, "spec": {"devices": cards}})


def _delete_device(world: World, step: Step) -> None:
    if step.target in world.api.objects[resource_names.DEVICES]:
        world.api.delete(resource_names.DEVICES, step.target)


CARD_STEPS: Mapping[str, Callable[[World, Step], None]] = {
    "add-devices": _add_devices,
    "fail-card": _fail_card,
    "edit-device": _edit_device,
    "delete-device": _delete_device,
}
"""Name -> what it does."""
