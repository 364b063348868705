"""The devices that a node offers: amounts, places, virtual functions and partitions, from its Device and its labels.

Nodes with equal devices share one answer, so ids, which differ between nodes, are kept apart from the key.

Source: spec/scheduler-workloads.md 3.1, 3.5; upstream pkg/scheduler/plugins/deviceshare/{device_cache,utils}.go.
"""

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from shared.kube.device import (
    GPU,
    GPU_MODEL,
    GPU_VENDOR,
    ISOLATION_PROVIDER,
    PARTITION_POLICY,
    PARTITIONS,
    SECONDARY_WELL_PLANNED,
    Device,
    DeviceInfo,
)
from shared.kube.json_text import read_json
from shared.kube.meta import Metadata
from shared.kube.quantity import BadQuantity, amounts, nanos, value

Amounts = Mapping[str, int]
Minors = tuple[int, ...]

HONOR = "Honor"
_WITH_BUILT_IN_TABLE = ("H100", "H800", "H20")
_BUILT_IN_VENDORS = ("", "nvidia")


class VirtualFunctionGroup(NamedTuple):
    """Virtual functions with the same labels: (bus id, minor) of each, by bus id."""

    labels: tuple[tuple[str, str], ...]
    functions: tuple[tuple[str, int], ...]


class OfferedDevice(NamedTuple):
    """One device.

    Attributes:
        total: its amounts; empty while it is unhealthy.
        numa: its NUMA node; -1 where unknown, None without a topology.
        pcie: its PCIe switch.
    """

    minor: int
    total: Amounts
    numa: int | None
    pcie: str
    labels: tuple[tuple[str, str], ...]
    groups: tuple[VirtualFunctionGroup, ...]

    @property
    def key(self) -> Hashable:
        """A key that is equal for equal devices."""
        return (self.minor, tuple(sorted(self.total.items())), *self[2:])


class Partition(NamedTuple):
    """GPUs that may be allocated together.

    Attributes:
        score: partitions of a lower score come first, as upstream has it.
        bandwidth: of its ring bus, in whole units; 0 where unknown.
    """

    minors: Minors
    score: int
    bandwidth: int


PartitionTable = Mapping[int, tuple[Partition, ...]]
"""Number of GPUs -> its partitions."""


class NodeDevices:
    """The devices of one node.

    Attributes:
        known: the node has a Device that can be read.
        of_type: type -> minor -> device, in the order of minors.
        ids: (type, minor) -> its UUID.
        vendor, model: of its GPUs, by the Device's labels.
        node_vendor, node_model, isolation: by the labels of the Node.
        table: partitions of its GPUs; None without any.
        honors: only partitions are allocated.
        well_planned: secondary devices are chosen with the allocation alone.
    """

    def __init__(self, device: Device | None, labels: Mapping[str, str]) -> None:
        self.known = device is not None
        own = (device.metadata.labels if device is not None else None) or {}
        self.vendor, self.model = own.get(GPU_VENDOR, ""), own.get(GPU_MODEL, "")
        self.node_vendor, self.node_model = labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, "")
        self.isolation = labels.get(ISOLATION_PROVIDER, "")
        self.well_planned = own.get(SECONDARY_WELL_PLANNED) == "true"
        self.of_type: dict[str, dict[int, OfferedDevice]] = {}
        self.ids: dict[tuple[str, int], str] = {}
        for info in device.spec.devices if device is not None else ():
            if info.minor is not None:
                self.of_type.setdefault(info.type, {})[info.minor] = _offered(info, info.minor)
                self.ids[info.type, info.minor] = info.id
        self.of_type = {type_: dict(sorted(minors.items())) for type_, minors in sorted(self.of_type.items())}
        reported = _table((device.metadata.annotations if device is not None else None) or {})
        self.table = reported if reported is not None else self._built_in()
        policy = own.get(PARTITION_POLICY) if reported is not None else labels.get(PARTITION_POLICY)
        self.honors = policy == HONOR

    def _built_in(self) -> PartitionTable | None:
        if self.node_vendor not in _BUILT_IN_VENDORS or self.node_model not in _WITH_BUILT_IN_TABLE:
            return None
        return {
            size: tuple(Partition(tuple(range(first, first + size)), 1, 0) for first in range(0, 8, size))
            for size in (1, 2, 4, 8)
        }

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for nodes with equal devices, whatever their ids."""
        return (
            self.known,
            tuple((type_, tuple(device.key for device in minors.values())) for type_, minors in self.of_type.items()),
            tuple(sorted(self.table.items())) if self.table is not None else None,
            (self.vendor, self.model, self.node_vendor, self.node_model, self.isolation),
            (self.honors, self.well_planned),
        )

    @cached_property
    def numas(self) -> tuple[int, ...]:
        """The NUMA nodes with devices, ascending."""
        return tuple(
            sorted({
                device.numa
                for minors in self.of_type.values()
                for device in minors.values()
                if device.numa is not None and device.numa >= 0
            })
        )  # fmt: skip

    @cached_property
    def switches(self) -> tuple[tuple[Minors, tuple[Minors, ...]], ...] | None:
        """GPUs of each NUMA node, with those of each of its PCIe switches; None where a GPU has no known place."""
        places: dict[int, dict[str, list[int]]] = {}
        for minor, device in self.of_type.get(GPU, {}).items():
            if device.numa is None:
                return None
            places.setdefault(device.numa, {}).setdefault(device.pcie, []).append(minor)
        return tuple(
            (
                tuple(sorted(minor for minors in below.values() for minor in minors)),
                tuple(tuple(minors) for _, minors in sorted(below.items())),
            )
            for _, below in sorted(places.items())
        )


def _offered(info: DeviceInfo, minor: int) -> OfferedDevice:
    place = info.topology
    groups = tuple(
        VirtualFunctionGroup(_pairs(group.labels), tuple(sorted((vf.bus, vf.minor) for vf in group.vfs)))
        for group in info.vf_groups
    )
    try:
        total = {name: size for name, size in amounts(info.resources or {}).items() if size} if info.health else {}
    except BadQuantity:  # one broken device does not take the others with it
        total = {}
    return OfferedDevice(
        minor,
        total,
        None if place is None else place.numa,
        "" if place is None else place.pcie,
        _pairs(info.labels),
        groups,
    )


def _pairs(labels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((labels or {}).items()))


class _ReportedPartition(msgspec.Struct, frozen=True, rename="camel"):
    minors: tuple[int, ...] = ()
    ring_bus_bandwidth: str = "0"
    allocation_score: int = 0


def _table(annotations: Mapping[str, str]) -> PartitionTable | None:
    text = annotations.get(PARTITIONS)
    if not text:
        return None
    try:
        read: dict[str, tuple[_ReportedPartition, ...]] = read_json(text, dict[str, tuple[_ReportedPartition, ...]])
        return {
            int(size): tuple(
                Partition(tuple(sorted(each.minors)), each.allocation_score, value(nanos(each.ring_bus_bandwidth)))
                for each in partitions
            )
            for size, partitions in read.items()
        }
    except (msgspec.MsgspecError, BadQuantity, ValueError):
        return None


NO_DEVICES = NodeDevices(None, {})
"""Of a node without a Device, whose kubelet chooses."""

LOST_DEVICES = NodeDevices(Device(Metadata(name="")), {})
"""Of a node whose Device is gone while pods have devices there: none is given, and what the pods have stays theirs.

Source: spec/scheduler-workloads.md 3.1.
"""
