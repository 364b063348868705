"""One accelerator as the output file lists it, and the file. Source: spec/node-agent.md 6.3."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from services.node_agent.devices.pci_bus import ADDRESS, NotOnPci, PciBus

GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
_NO_SOCKET = "-1"


class ListedPlace(NamedTuple):
    """Place of a device as texts; empty where it is not known."""

    node: str = ""
    root: str = ""
    bus_id: str = ""


class ListedDevice(NamedTuple):
    """One device.

    Attributes:
        minor: number of its device file, such as `/dev/davinci0`.
        resources: name -> quantity.
        error_code, error_message: empty while it is healthy.
    """

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: Mapping[str, str]
    place: ListedPlace
    healthy: bool = True
    error_code: str = ""
    error_message: str = ""


def place_of(bus: PciBus, address: str, node: str = "") -> ListedPlace:
    """Returns the place of a PCI address that a tool printed, with what sysfs has of it.

    Args:
        node: NUMA node that the tool printed; empty: the one of sysfs.
    """
    address = address.lower()
    if not ADDRESS.fullmatch(address):
        return ListedPlace(node)
    try:
        found = bus.place(address)
    except NotOnPci:
        return ListedPlace(node, "", address)
    return ListedPlace(node or str(found.numa_node), found.root, address)


def encode(devices: Iterable[ListedDevice]) -> bytes:
    """Returns the content of the output file: an indented array, without empty fields."""
    return json.dumps([_document(device) for device in devices], indent=2).encode()


def _document(device: ListedDevice) -> dict[str, Any]:
    place = {
        "socketID": _NO_SOCKET,
        "nodeID": device.place.node,
        "pcieID": device.place.root,
        "busID": device.place.bus_id,
    }
    errors = {"errCode": device.error_code, "errMessage": device.error_message}
    return {
        "vendor": device.vendor,
        "model": device.model,
        "uuid": device.uuid,
        "minor": device.minor,
        "resources": dict(sorted(device.resources.items())),
        "topology": {name: text for name, text in place.items() if text},
        "status": {"healthy": device.healthy} | {name: text for name, text in errors.items() if text},
    }
