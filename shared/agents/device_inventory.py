"""A node's inventory: the devices that its agent found, with their health, complete in each message.

Sent on every change and repeated at intervals, as MessagePack. Device discovery compares the content of a message with
the node's last one before it decodes it, so a repeated inventory costs a hash.

Bounds of single numbers here only keep a message decodable; device discovery checks what they mean, and ignores a
device that cannot be true rather than the whole inventory.

Source: spec/node-agent.md 6; spec/api.md 1.5.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from shared.agents.decoding import BadMessage, decoded, named
from shared.agents.report import Instant, Name

MAX_DEVICES = 1_024
MAX_VIRTUAL_FUNCTIONS = 256
"""Of one device."""
MAX_PARTITIONS = 1_024
"""Of one size."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Text = Annotated[str, Meta(max_length=128)]
DeviceType = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
LabelValue = Annotated[str, Meta(max_length=63)]
Labels = Annotated[dict[Annotated[str, Meta(min_length=1, max_length=317)], LabelValue], Meta(max_length=32)]


class VirtualFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """An SR-IOV virtual function of a device.

    Attributes:
        minor: -1: it has none.
        bus_id: PCI address.
    """

    bus_id: Annotated[str, Meta(min_length=1, max_length=128)]
    minor: Int32 = -1


class VirtualFunctionGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Virtual functions with the same labels."""

    functions: Annotated[tuple[VirtualFunction, ...], Meta(max_length=MAX_VIRTUAL_FUNCTIONS)]
    labels: Labels = {}


class DeviceCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition of a device, such as `Healthy`; device discovery records the time of its last transition."""

    type: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9._/-]{0,62}$")]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Meta(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$")]
    message: Annotated[str, Meta(max_length=512)] = ""


class DeviceFound(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device.

    Attributes:
        type: `gpu`, `rdma`, `fpga`, `xpu`, `npu` and so on. Accelerators that pods request as `koordinator.sh/gpu-*`
            or `huawei.com/npu-*` have the type `gpu`, as the Device object has it (spec/node-agent.md 6.2).
        minor: unique within the type.
        id: UUID, or the PCI address of a device without one; empty: it has neither.
        health: pods may get it.
        resources: name, such as `koordinator.sh/gpu-core`, -> amount: bytes of `koordinator.sh/gpu-memory`, percent of
            `gpu-core`, `gpu-memory-ratio`, `rdma` and `fpga`, whole units of any other resource.
        module_id: physical module; None: unknown.
        socket, numa: -1: unknown.
        pcie_root: host bridge in sysfs, such as `pci0000:3a`. pcie_switch: PCI address of the nearest bridge above the
            device. bus_id: its own PCI address. Empty: unknown.
        labels: properties by which pods select devices.
        virtual_functions: by labels.
        conditions: at most one of each type.
    """

    type: DeviceType
    minor: Int32
    health: bool
    id: Text = ""
    resources: Annotated[dict[Name, Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]], Meta(max_length=32)] = {}
    module_id: Int32 | None = None
    socket: Int32 = -1
    numa: Int32 = -1
    pcie_root: Text = ""
    pcie_switch: Text = ""
    bus_id: Text = ""
    labels: Labels = {}
    virtual_functions: Annotated[tuple[VirtualFunctionGroup, ...], Meta(max_length=16)] = ()
    conditions: Annotated[tuple[DeviceCondition, ...], Meta(max_length=16)] = ()


def device_key(found: DeviceFound) -> str:
    """Returns `TYPE/MINOR`, such as `gpu/0`, which is unique in a node."""
    return f"{found.type}/{found.minor}"


class Partition(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs that are connected with each other and are given to a pod together.

    Attributes:
        minors: sorted.
        link: `NVLink`, `HCCS` and so on.
        ring_bandwidth: a quantity, such as `400Gi`; empty: unknown.
        score: of several partitions of one size those with a lower score are taken first, as upstream has it.
    """

    minors: Annotated[tuple[Int32, ...], Meta(min_length=1, max_length=MAX_DEVICES)]
    link: Annotated[str, Meta(max_length=63)] = ""
    ring_bandwidth: Annotated[str, Meta(max_length=64)] = ""
    score: Int32 = 1


class Devices(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of an inventory.

    Attributes:
        devices: all that were found, by type and minor.
        unread: type of device -> the reason why its devices could not be read this time. Those that are recorded stay,
            as unhealthy: a type that is neither in `devices` nor here has none.
        labels: of the Device object: names of `REPORTED_LABELS` in shared/kube/device.py, such as
            `node.koordinator.sh/gpu-model`.
        partitions: number of GPUs -> partitions of this size; empty: the node has no table.
    """

    devices: Annotated[tuple[DeviceFound, ...], Meta(max_length=MAX_DEVICES)] = ()
    unread: Annotated[dict[DeviceType, Annotated[str, Meta(max_length=512)]], Meta(max_length=32)] = {}
    labels: Labels = {}
    partitions: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}$")], Annotated[tuple[Partition, ...], Meta(max_length=MAX_PARTITIONS)]],
        Meta(max_length=MAX_DEVICES),
    ] = {}  # fmt: skip


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One inventory of one node's agent. Its first place on the wire is the schema's version.

    Attributes:
        node, boot: as in a report.
        seq: number of the inventory in this run of the agent, from 1; a repeat has the same.
        at_ns: when the devices were read, by the node's clock, nanoseconds since the epoch.
        content: the devices, encoded; `devices_of` decodes it.
    """

    node: Name
    boot: Annotated[str, Meta(min_length=1, max_length=64)]
    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    at_ns: Instant
    content: msgspec.Raw


class BadInventory(BadMessage):
    """An inventory that is rejected; the text names the node, the field and the reason."""

    what: ClassVar[str] = "inventory"


_encoder = msgspec.msgpack.Encoder(order="sorted")
_decoder = msgspec.msgpack.Decoder(Inventory)
_content_decoder = msgspec.msgpack.Decoder(Devices)


def encode(*, node: str, boot: str, seq: int, at_ns: int, devices: Devices) -> bytes:
    """Returns an inventory as a message. Equal devices have equal bytes, in any order of their fields."""
    return _encoder.encode(Inventory(node, boot, seq, at_ns, msgspec.Raw(_encoder.encode(devices))))


def decode(data: bytes, node: str) -> Inventory:
    """Returns a message as an inventory, whose content is not decoded yet.

    Args:
        node: the node of the topic on which it came.

    Raises:
        BadInventory: names the node, the field and the reason.
    """
    return decoded(_decoder, Inventory, BadInventory, data, node)


def devices_of(inventory: Inventory) -> Devices:
    """Decodes the content of an inventory.

    Raises:
        BadInventory: names the node, the field and the reason.
    """
    try:
        return _content_decoder.decode(inventory.content)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise BadInventory(inventory.node, named(Devices, path.rstrip("`")), reason) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInventory(inventory.node, "", f"is no MessagePack: {error}") from error
