"""Check of an inventory: devices and labels that cannot be true are ignored, each with a reason; the rest counts.

An absurd amount would be added to the node's allocatable, and an invalid label would make the API server reject the
whole Device, so one broken card would take all others with it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shared.agents.device_inventory import DeviceFound, Devices, Partition, device_key
from shared.kube.device import GPU, REPORTED_LABELS
from shared.kube.quantity import BadQuantity, nanos

MAX_MINOR = 4_095
MAX_PLACE = 1_023
"""Largest number of a NUMA node, a socket or a module."""
MAX_GPU_MEMORY = 1 << 44
"""Bytes: 16 TiB of one device."""
MAX_AMOUNT = 1 << 31
"""Of a resource in units of its own, of one device."""
PERCENT = frozenset(f"koordinator.sh/{name}" for name in ("gpu", "gpu-core", "gpu-memory-ratio", "rdma", "fpga"))
"""Resources of which a device has 100 at most."""
MEMORY = "koordinator.sh/gpu-memory"
MOST_REASONS = 32
"""Reasons that are recorded of an inventory; further ones are counted."""
FURTHER = "further"

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_RESOURCE = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class CheckedInventory(NamedTuple):
    """The part of an inventory that counts.

    Attributes:
        devices: `TYPE/MINOR` -> the device, sorted.
        ignored: part of the inventory, such as `gpu/3` -> the reason, for all that does not count.
    """

    devices: dict[str, DeviceFound]
    unread: dict[str, str]
    labels: dict[str, str]
    partitions: dict[str, tuple[Partition, ...]]
    ignored: dict[str, str]


def check_inventory(content: Devices) -> CheckedInventory:
    """Returns the part of an inventory that counts. Of two devices with one minor or one id neither does."""
    minors = Counter(device_key(found) for found in content.devices)
    ids = Counter((found.type, found.id) for found in content.devices if found.id)
    ignored: dict[str, str] = {}
    devices: dict[str, DeviceFound] = {}
    for found in sorted(content.devices, key=lambda found: (found.type, found.minor)):
        key = device_key(found)
        if minors[key] > 1:
            ignored[key] = f"{minors[key]} devices have this minor"
        elif ids[found.type, found.id] > 1:
            ignored[key] = f"{ids[found.type, found.id]} devices have the id {found.id}"
        elif reason := next(_device_faults(found), ""):
            ignored[key] = reason
        else:
            devices[key] = found
    labels = {}
    for name, text in sorted(content.labels.items()):
        if name not in REPORTED_LABELS:
            ignored[f"label {name}"] = "is no label that an agent reports of its devices"
        elif not _LABEL_VALUE.fullmatch(text):
            ignored[f"label {name}"] = f"{text!r} is no value of a label"
        else:
            labels[name] = text
    partitions, faults = _partitions(content, devices)
    return CheckedInventory(devices, dict(sorted(content.unread.items())), labels, partitions, ignored | faults)


def shortened(ignored: Mapping[str, str]) -> dict[str, str]:
    """Returns the first reasons, and the number of the others."""
    if len(ignored) <= MOST_REASONS:
        return dict(ignored)
    first = dict(sorted(ignored.items())[: MOST_REASONS - 1])
    return first | {FURTHER: f"{len(ignored) - len(first)} parts more are ignored"}


def _device_faults(found: DeviceFound) -> Iterator[str]:
    if not 0 <= found.minor <= MAX_MINOR:
        yield f"minor {found.minor} is not in 0 to {MAX_MINOR}"
    for what, number in (("NUMA node", found.numa), ("socket", found.socket), ("module", found.module_id or 0)):
        if not -1 <= number <= MAX_PLACE:
            yield f"{what} {number} is not in -1 to {MAX_PLACE}"
    for name, size in sorted(found.resources.items()):
        most = 100 if name in PERCENT else MAX_GPU_MEMORY if name == MEMORY else MAX_AMOUNT
        if not _RESOURCE.fullmatch(name):
            yield f"{name!r} is no name of a resource"
        elif not 0 <= size <= most:
            yield f"{name} is {size}; a device has 0 to {most}"
    kinds = [condition.type for condition in found.conditions]
    if len(set(kinds)) < len(kinds):
        yield "two conditions have one type"
    functions = [function for group in found.virtual_functions for function in group.functions]
    if len({function.bus_id for function in functions}) < len(functions):
        yield "two virtual functions have one bus id"
    if any(not -1 <= function.minor <= MAX_MINOR for function in functions):
        yield f"the minor of a virtual function is not in -1 to {MAX_MINOR}"


def _partitions(
    content: Devices, devices: Mapping[str, DeviceFound]
) -> tuple[dict[str, tuple[Partition, ...]], dict[str, str]]:
    found: dict[str, tuple[Partition, ...]] = {}
    ignored: dict[str, str] = {}
    for size, partitions in sorted(content.partitions.items(), key=lambda item: int(item[0])):
        reasons = [(partition, next(_partition_faults(partition, int(size), devices), "")) for partition in partitions]
        found[size] = tuple(partition for partition, reason in reasons if not reason)
        if bad := [reason for _, reason in reasons if reason]:
            ignored[f"partitions of {size}"] = f"{len(bad)} are ignored: {bad[0]}"
    return {size: partitions for size, partitions in found.items() if partitions}, ignored


def _partition_faults(partition: Partition, size: int, devices: Mapping[str, DeviceFound]) -> Iterator[str]:
    minors = partition.minors
    if len(set(minors)) != size or len(minors) != size:
        yield f"{list(minors[:16])} are not {size} GPUs"
    if missing := [minor for minor in minors if f"{GPU}/{minor}" not in devices]:
        yield f"there is no gpu/{missing[0]}"
    if partition.ring_bandwidth:
        try:
            nanos(partition.ring_bandwidth)
        except BadQuantity as error:
            yield str(error)
