"""The devices of a pod as an annotation: written for the node agent, and read back.

    scheduling.koordinator.sh/device-allocated
        {"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50",...},"id":"GPU-0"}]}

Source: spec/scheduler-workloads.md 3.3; upstream apis/extension/device_share.go.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from services.scheduler.plugins.device_share.device_usage import AllocatedDevice, Allocation
from shared.domain.device_requests import MEMORY
from shared.kube.allocated_devices import (
    AllocatedFunction,
    AllocationExtension,
    AnnotatedDevice,
    read_allocated_devices,
)
from shared.kube.pod import Pod
from shared.kube.quantity import NANO, BadQuantity, amounts
from shared.kube.quantity_text import Notation, quantity_text, request_notations
from shared.kube.system_annotations import DEVICE_ALLOCATED

MAX_ALLOCATIONS = 16_384
"""Number of allocations that are kept as read."""


def allocation_of(annotations: Mapping[str, str] | None) -> Allocation:
    """The devices in annotations; none where there are none or they cannot be read."""
    text = (annotations or {}).get(DEVICE_ALLOCATED)
    return _allocation(text) if text else ()


@lru_cache(maxsize=MAX_ALLOCATIONS)
def _allocation(text: str) -> Allocation:
    """The devices in an annotation; equal texts have one object."""
    try:
        by_type = read_allocated_devices(text)
        return tuple(
            AllocatedDevice(
                type_,
                device.minor,
                tuple(sorted(amounts(device.resources or {}).items())),
                tuple((function.bus, function.minor) for function in device.functions),
                device.template,
            )
            for type_, devices in sorted(by_type.items())
            for device in devices
        )
    except (msgspec.MsgspecError, BadQuantity):
        return ()


def annotation_for(pod: Pod, allocation: Allocation, ids: Mapping[tuple[str, int], str]) -> str:
    """The annotation for an allocation; `ids` are the node's, by type and minor."""
    notations = {MEMORY: Notation.BINARY, **request_notations(pod)}
    by_type: dict[str, list[AnnotatedDevice]] = {}
    for device in sorted(allocation, key=lambda device: device.type):
        resources = {
            name: quantity_text(size * NANO, notations.get(name, Notation.DECIMAL)) for name, size in device.amounts
        }
        functions = tuple(AllocatedFunction(minor, bus) for bus, minor in device.functions)
        extension = (
            AllocationExtension(functions or None, device.template) if functions or device.template else msgspec.UNSET
        )
        uuid = ids.get((device.type, device.minor))
        by_type.setdefault(device.type, []).append(
            AnnotatedDevice(device.minor, resources, uuid or msgspec.UNSET, extension)
        )
    return msgspec.json.encode(by_type).decode()
