"""Devices of a world at rest: what the agents reported is in the Devices, and what is healthy is what nodes offer."""

from collections.abc import Iterator

from cli.dev.fault_simulation.world import World
from shared.kube.quantity import NANO, nanos
from shared.kube.resource_names import DEVICES

CORE = "koordinator.sh/gpu-core"


def differing_devices(world: World) -> Iterator[str]:
    """Yields nodes whose Device, or whose amounts, are not what their agents reported."""
    for node, cards in world.cards.items():
        if cards.accepted != cards.inventory:
            if not world.agents[node].process.stopped:
                yield f"the inventory of {node} is not accepted"
            continue  # silent to the end
        device = world.api.objects[DEVICES].get(node)
        desired = {found.minor: (found.health, found.id) for found in cards.inventory.devices}
        listed = device["spec"]["devices"] if device is not None else []
        if {each["minor"]: (each["health"], each["id"]) for each in listed} != desired:
            yield f"the Device of {node} is not what its agent reports: {listed}, against {desired}"
        offered = nanos(world.api.objects["nodes"][node]["status"]["allocatable"].get(CORE, "0")) // NANO
        healthy = sum(health for health, _ in desired.values())
        if offered != 100 * healthy:
            yield f"{node} offers {offered} of {CORE}, and has {healthy} healthy GPUs"
