"""The annotation device-allocated of a reserve pod, less what the owners of its Reservation have of it.

Source: spec/scheduler-workloads.md 3.3, 3.8.
"""

from collections.abc import Iterable

import msgspec

from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, amounts


class _Device(msgspec.Struct, omit_defaults=True):
    minor: int
    resources: dict[str, str] = {}
    id: str = ""


_Devices = dict[str, list[_Device]]


def remaining_devices(held: str, used: Iterable[str]) -> str | None:
    """Returns the annotation of what is left; None where nothing is. One that cannot be read uses nothing."""
    try:
        left: _Devices = read_json(held, _Devices)
        amounts_left = {
            (type_, device.minor): amounts(device.resources) for type_, devices in left.items() for device in devices
        }
    except (msgspec.MsgspecError, BadQuantity):
        return held
    for text in used:
        for place, taken in _amounts(text):
            there = amounts_left.get(place, {})
            for name, size in taken.items():
                if name in there:
                    there[name] = max(0, there[name] - size)
    remaining = {
        type_: [
            msgspec.structs.replace(device, resources={name: str(size) for name, size in sizes.items()})
            for device in devices
            if any((sizes := amounts_left[type_, device.minor]).values())
        ]
        for type_, devices in left.items()
    }
    remaining = {type_: devices for type_, devices in remaining.items() if devices}
    return msgspec.json.encode(remaining).decode() if remaining else None


def _amounts(text: str) -> list[tuple[tuple[str, int], dict[str, int]]]:
    try:
        read: _Devices = read_json(text, _Devices)
        return [
            ((type_, device.minor), amounts(device.resources)) for type_, devices in read.items() for device in devices
        ]
    except (msgspec.MsgspecError, BadQuantity):
        return []
