"""The devices of a node with the pods that use them, for the debug view."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.plugins.device_share.device_usage import Allocation, DeviceUsage, less
from services.scheduler.plugins.device_share.devices_of_node import NodeDevices


def node_view(devices: NodeDevices, usage: DeviceUsage, pods: Mapping[str, Allocation]) -> dict[str, Any]:
    """Returns type -> devices with total and free amounts and the uids of their pods."""
    return {
        type_: [
            {
                "minor": minor,
                "id": devices.ids[type_, minor],
                "healthy": bool(device.total),
                "numa": device.numa,
                "pcie": device.pcie,
                "total": dict(device.total),
                "free": less(device.total, usage.used.get(type_, {}).get(minor, {})),
                "pods": sorted(
                    uid
                    for uid, allocation in pods.items()
                    if any((each.type, each.minor) == (type_, minor) for each in allocation)
                ),
            }
            for minor, device in minors.items()
        ]
        for type_, minors in devices.of_type.items()
    }
