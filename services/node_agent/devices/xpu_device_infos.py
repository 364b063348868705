"""NPUs, XPUs and other accelerators from the files that device daemons write. Source: spec/node-agent.md 6.1, 6.3.

`koord run device-daemon` writes one; a vendor's own program may write others into the same folder.
"""

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from services.node_agent.devices.device_conditions_and_labels import MAX_MINOR, healthy, unhealthy
from services.node_agent.devices.nvidia_gpus import GPU_MEMORY_RATIO
from shared.agents.device_inventory import DeviceCondition, DeviceFound, Partition
from shared.errors import KoordError
from shared.kube.device import GPU
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, amounts

MAX_FILE_BYTES = 1 << 20
DOMAIN = "koordinator.sh/"
_WITHOUT_DOMAIN = ("gpu-core", "gpu-memory")
_NO_NUMA_NODE = -1
Text = Annotated[str, Meta(max_length=128)]
_MINOR = re.compile(r"[0-9]{1,4}").fullmatch


class PeerLink(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Link of a device to others: their minors separated by commas, and its kind, such as `HCCS`."""

    peer_minor: str = ""
    type: Annotated[str, Meta(max_length=63)] = ""


class InfoTopology(msgspec.Struct, omit_defaults=True):
    """Place of a device, with the names of the file. Ids are texts; an absent NUMA node is none."""

    p2p_links: list[PeerLink] | None = msgspec.field(default=None, name="p2pLinks")
    must_honor_partition: bool = msgspec.field(default=False, name="mustHonorPartition")
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    pcie_id: Text = msgspec.field(default="", name="pcieID")
    bus_id: Text = msgspec.field(default="", name="busID")


class InfoStatus(msgspec.Struct):
    """Health of a device."""

    healthy: bool = False
    err_code: str = msgspec.field(default="", name="errCode")
    err_message: str = msgspec.field(default="", name="errMessage")


class DeviceInfo(msgspec.Struct):
    """One device of a file."""

    vendor: Text = ""
    model: Text = ""
    uuid: Text = ""
    minor: Text = ""
    resources: Annotated[dict[Annotated[str, Meta(min_length=1, max_length=253)], str], Meta(max_length=31)] = {}
    topology: InfoTopology | None = None
    status: InfoStatus | None = None


class BadDeviceInfo(KoordError):
    """A file of device infos that cannot be used; the text names the file, the place and the reason."""


class InfoDevices(msgspec.Struct, frozen=True):
    """Content of all files.

    Attributes:
        devices: by minor.
        vendor, model: of the first device.
        partitions: number of devices -> sets of that many which are linked.
        honor_partitions: nothing but these sets may be allocated; None: the first device reports no links.
    """

    devices: tuple[DeviceFound, ...] = ()
    vendor: str = ""
    model: str = ""
    partitions: dict[str, tuple[Partition, ...]] = {}
    honor_partitions: bool | None = None


def read_device_infos(folder: Path) -> InfoDevices:
    """Reads every regular file of the folder; none without the folder.

    Raises:
        BadDeviceInfo: a file cannot be read or is invalid. No other file counts then: half of a node's devices would
            look like the rest had vanished.
    """
    infos: list[DeviceInfo] = []
    for file in _files(folder):
        infos += _decoded(file)
    devices: dict[int, DeviceFound] = {}
    for info in infos:
        device = _device(info)
        if device.minor in devices:
            raise BadDeviceInfo(f"{folder}: {info.uuid} and {devices[device.minor].id} both have minor {info.minor}")
        devices[device.minor] = device
    if not devices:
        return InfoDevices()
    topology = infos[0].topology
    linked = topology is not None and topology.p2p_links is not None
    return InfoDevices(
        tuple(devices[minor] for minor in sorted(devices)),
        infos[0].vendor,
        infos[0].model,
        _partitions(infos),
        bool(topology and topology.must_honor_partition) if linked else None,
    )


def _files(folder: Path) -> list[Path]:
    try:
        # A name with a leading dot is a file that is being written.
        return sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadDeviceInfo(f"{folder} cannot be listed: {error}") from error


def _decoded(file: Path) -> list[DeviceInfo]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BadDeviceInfo(f"{file} has more than {MAX_FILE_BYTES} bytes")
        infos: list[DeviceInfo] = read_json(data.decode(), list[DeviceInfo] | None) or []
    except FileNotFoundError:
        return []  # its daemon ended meanwhile
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise BadDeviceInfo(f"{file} cannot be read: {error}") from error
    for info in infos:
        _check(file, info)
    return infos


def _check(file: Path, info: DeviceInfo) -> None:
    """Checks the texts of a device that must be numbers.

    Raises:
        BadDeviceInfo: naming file, device and field.
    """
    minor = info.minor
    if not _MINOR(minor) or int(minor) > MAX_MINOR:
        raise BadDeviceInfo(f"{file}: {info.uuid or 'a device'} has minor {minor!r}; it must be 0..{MAX_MINOR}")
    if not info.uuid:
        raise BadDeviceInfo(f"{file}: the device with minor {minor} has no uuid")
    node = info.topology.node_id if info.topology is not None else ""
    if not re.fullmatch(r"|-1|[0-9]{1,4}", node):
        raise BadDeviceInfo(f"{file}: {info.uuid} has nodeID {node!r}; it must be a NUMA node's number")
    try:
        negative = [name for name, size in amounts(info.resources).items() if size < 0]
    except BadQuantity as error:
        raise BadDeviceInfo(f"{file}: {info.uuid}: {error}") from error
    if negative:
        raise BadDeviceInfo(f"{file}: {info.uuid} has a negative amount of {', '.join(negative)}")


def _device(info: DeviceInfo) -> DeviceFound:
    named = {DOMAIN + name if name in _WITHOUT_DOMAIN else name: text for name, text in info.resources.items()}
    topology = info.topology if info.topology is not None else InfoTopology()
    return DeviceFound(
        GPU,
        int(info.minor),
        health=info.status is None or info.status.healthy,
        id=info.uuid,
        resources={GPU_MEMORY_RATIO: 100} | amounts(named),
        numa=int(topology.node_id) if topology.node_id else _NO_NUMA_NODE,
        pcie_root=topology.pcie_id,
        bus_id=topology.bus_id,
        conditions=_conditions(info.status) if info.status is not None else (),
    )


def _conditions(status: InfoStatus) -> tuple[DeviceCondition, ...]:
    return healthy() if status.healthy else unhealthy(status.err_code, status.err_message or "device is unhealthy")


def _partitions(infos: list[DeviceInfo]) -> dict[str, tuple[Partition, ...]]:
    """Returns the sets of linked devices: each device with the peers of one of its links, each set once."""
    minors_of_all = {int(info.minor) for info in infos}
    found: dict[tuple[int, ...], Partition] = {}
    for info in infos:
        for link in (info.topology.p2p_links if info.topology is not None else None) or ():
            peers = {int(text) for text in link.peer_minor.split(",") if _MINOR(text)}
            if link.type and peers and peers <= minors_of_all:
                minors = tuple(sorted(peers | {int(info.minor)}))
                found.setdefault(minors, Partition(minors, link.type))
    sizes = sorted({len(minors) for minors in found})
    return {str(size): tuple(part for minors, part in found.items() if len(minors) == size) for size in sizes}
