"""The annotation device-allocated of a reserve pod, less what the owners of its Reservation have of it.

Source: spec/scheduler-workloads.md 3.3, 3.8.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.kube.allocated_devices import AnnotatedDevice, read_allocated_devices
from shared.kube.quantity import BadQuantity, amounts


def remaining_devices(held: str, used: Iterable[str]) -> str | None:
    """Returns the annotation of what is left; None where nothing is. One that cannot be read uses nothing."""
    try:
        left = read_allocated_devices(held)
        amounts_left = _amounts_of(left)
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
            AnnotatedDevice(
                device.minor, {name: str(size) for name, size in sizes.items()}, device.uuid or msgspec.UNSET
            )
            for device in devices
            if any((sizes := amounts_left[type_, device.minor]).values())
        ]
        for type_, devices in left.items()
    }
    remaining = {type_: devices for type_, devices in remaining.items() if devices}
    return msgspec.json.encode(remaining).decode() if remaining else None


def _amounts(text: str) -> Sequence[tuple[tuple[str, int], dict[str, int]]]:
    try:
        return list(_amounts_of(read_allocated_devices(text)).items())
    except (msgspec.MsgspecError, BadQuantity):
        return ()


def _amounts_of(by_type: Mapping[str, Iterable[AnnotatedDevice]]) -> dict[tuple[str, int], dict[str, int]]:
    """Returns (type, minor) -> resource -> amount.

    Raises:
        BadQuantity: an amount is no quantity.
    """
    return {
        (type_, device.minor): amounts(device.resources or {})
        for type_, devices in by_type.items()
        for device in devices
    }
