"""Results about devices in the recorded shapes."""

from collections.abc import Iterable
from typing import Any

from cli.parity.runners.scheduler.reason_words import upstream_text
from services.scheduler.plugins.device_share.device_usage import AllocatedDevice, ByType, DeviceUsage, less
from services.scheduler.plugins.device_share.devices_of_node import NodeDevices
from services.scheduler.plugins.helper.rejections import Rejection

SUCCESS = {"code": "Success"}


def status_of(rejection: object) -> dict[str, Any]:
    """Returns a result in the recorded shape."""
    if not isinstance(rejection, Rejection):
        return dict(SUCCESS)
    code = "Error" if rejection.error else "UnschedulableAndUnresolvable" if rejection.unresolvable else "Unschedulable"
    return {"code": code, "reasons": sorted(upstream_text(reason) for reason in rejection.reasons)}


def free_amounts(devices: NodeDevices, usage: DeviceUsage) -> dict[str, dict[str, dict[str, int]]]:
    """Returns type -> minor -> free amounts."""
    return {
        type_: {
            str(minor): less(device.total, usage.used.get(type_, {}).get(minor, {})) for minor, device in minors.items()
        }
        for type_, minors in devices.of_type.items()
    }


def plain(chosen: Iterable[AllocatedDevice]) -> dict[str, list[dict[str, Any]]]:
    """Returns an allocation, in order of choice."""
    found: dict[str, list[dict[str, Any]]] = {}
    for device in chosen:
        shown: dict[str, Any] = {"minor": device.minor, "resources": dict(device.amounts)}
        if device.functions:
            shown["vfs"] = [{"busID": bus, "minor": minor} for bus, minor in device.functions]
        if device.template:
            shown["template"] = device.template
        found.setdefault(device.type, []).append(shown)
    return found


def by_minor(amounts: ByType) -> dict[str, dict[str, dict[str, int]]]:
    """Returns amounts by type and minor."""
    return {type_: {str(minor): dict(each) for minor, each in minors.items()} for type_, minors in amounts.items()}
