"""Hook RDMADeviceInject: the character devices of the RDMA cards of a pod. Source: spec/node-agent.md 4.7."""

from collections.abc import Callable

from services.node_agent.runtime_hooks.allocated_devices_of_pod import devices_of_type
from services.node_agent.runtime_hooks.container_hooks import (
    Adjustment,
    CharDevice,
    ContainerContext,
    Hook,
    HookFailed,
)
from shared.kube.device import RDMA

NAME = "RDMADeviceInject"

CardDevice = Callable[[str], CharDevice]
"""From a card's or virtual function's PCI address to its device; a LookupError where it has none."""


def rdma_devices(verbs: CardDevice, connection_manager: Callable[[], CharDevice]) -> Hook:
    """Returns the hook: the connection manager, and the verbs device of each virtual function or else of the card.

    Args:
        verbs: from a PCI address to `/dev/infiniband/uverbsN`.
        connection_manager: returns `/dev/infiniband/rdma_cm`; a LookupError where the module is not loaded.
    """

    def hook(context: ContainerContext) -> Adjustment:
        cards = devices_of_type(NAME, context, RDMA)
        if not cards:
            return Adjustment()
        addresses = [
            address
            for card in cards
            for address in (tuple(function.bus for function in card.functions) or (card.uuid,))
        ]
        try:
            return Adjustment(devices=(connection_manager(), *map(verbs, addresses)))
        except LookupError as error:
            raise HookFailed(NAME, context, str(error)) from error

    return hook
