"""The devices of a container's pod, for hooks that give them to it."""

import msgspec

from services.node_agent.runtime_hooks.container_hooks import ContainerContext, HookFailed
from shared.kube.allocated_devices import AnnotatedDevice, read_allocated_devices
from shared.kube.system_annotations import DEVICE_ALLOCATED


def devices_of_type(hook: str, context: ContainerContext, device_type: str) -> tuple[AnnotatedDevice, ...]:
    """Returns the pod's devices of a type; none where it has no such.

    Raises:
        HookFailed: the annotation cannot be read.
    """
    text = context.annotations.get(DEVICE_ALLOCATED)
    if not text:
        return ()
    try:
        return read_allocated_devices(text).get(device_type, ())
    except msgspec.MsgspecError as error:
        raise HookFailed(hook, context, f"annotation {DEVICE_ALLOCATED} cannot be read: {error}") from error
