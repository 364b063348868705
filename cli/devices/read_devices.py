"""Reads the devices of a cluster from the scheduler's State: nodes, Device objects, and the allocations of pods."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from cli.devices.gpu_workload import FreeNode, WorkloadType, counted, usable_of
from cli.devices.listed_devices import PERCENT, Card, ClusterDevices, GpuSums, NodeDevices, PodShare, Stranded, sums_of
from cli.devices.optimum import optimum_of
from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.device_share.device_usage import AllocatedDevice
from services.scheduler.plugins.gpu_packing.pod_types import WHOLE, type_of
from services.scheduler.plugins.helper.node_selectors import own_matches
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.device_requests import MEMORY
from shared.kube.device import GPU, GPU_MODEL, DeviceInfo
from shared.kube.quantity import BadQuantity, amounts


def cluster_devices(view: SchedulerState) -> ClusterDevices:
    """Returns the devices of all nodes that have a Device, by name."""
    return _Reader(view).read()


class _Reader:
    def __init__(self, view: SchedulerState) -> None:
        self._view = view
        settings = in_force(view.config_settings)
        self._cache = ClusterCache(view, (), believes_annotations=settings.believes_annotations)
        self._cache.settle()
        table = self._cache.table
        self._devices = self._cache.cluster_objects.devices
        self._rows = {name: table.rows[name] for name in sorted(self._devices) if name in view.nodes}
        with_gpus = np.zeros(table.size, np.bool_)
        with_gpus[[row for name, row in self._rows.items() if _gpus(self._devices[name].spec.devices)]] = True
        self._with_gpus = with_gpus
        self._types: dict[PodClass, WorkloadType] = {}
        self._card_memory = max(
            (_amounts(info).get(MEMORY, 0) for each in self._devices.values() for info in each.spec.devices), default=0
        )

    def read(self) -> ClusterDevices:
        assigned = [each for pods in self._cache.on.values() for each in pods.values()]
        waiting = [
            each.pod_class
            for each in self._view.pods.values()
            if each.pod_class is not None and not each.ended and each.assignment() is None
        ]
        placed = counted(
            found
            for row, pods in self._cache.on.items()
            if self._with_gpus[row]
            for each in pods.values()
            if (found := self._type(each.pod_class)).rows
        )
        more = counted(found for each in waiting if (found := self._type(each)).amounts.gpus)
        workload = counted(
            found
            for pod_class in (*(each.pod_class for each in assigned), *waiting)
            if (found := self._type(pod_class)).amounts.gpus
        )
        nodes = [self._node(name, row, workload) for name, row in self._rows.items()]
        sums = sums_of(nodes)
        free = [self._free(row, self._cards(name, row)) for name, row in self._rows.items() if self._with_gpus[row]]
        optimum, without = optimum_of(self._cache.table, free, placed, more, sums)
        return ClusterDevices(tuple(nodes), sums, sum(workload.values()), len(workload), optimum, without)

    def _type(self, pod_class: PodClass) -> WorkloadType:
        found = self._types.get(pod_class)
        if found is None:
            matches = own_matches(self._cache.table, pod_class) & self._with_gpus
            amounts_ = type_of(pod_class, self, self._card_memory)
            found = WorkloadType(amounts_, frozenset(np.flatnonzero(matches).tolist()))
            self._types[pod_class] = found
        return found

    def _node(self, name: str, row: int, workload: dict[WorkloadType, int]) -> NodeDevices:
        cards = self._cards(name, row)
        gpus = [each for each in cards if each.type == GPU]
        node = self._free(row, cards)
        found = usable_of(node, workload) if gpus else None
        sums = GpuSums(
            sum(each.healthy for each in gpus),
            sum(not each.healthy for each in gpus),
            sum(each.percent for each in gpus) / PERCENT,
            sum(node.gpus) / PERCENT,
            None if found is None else found[0],
            Stranded() if found is None else found[1],
        )
        pods = self._cache.on.get(row, {}).values()
        unrecorded = sorted(
            each.name for each in pods if self._type(each.pod_class).amounts.gpus and not _has_gpu(each)
        )
        labels = self._view.nodes[name].node.metadata.labels or {}
        return NodeDevices(name, labels.get(GPU_MODEL, ""), sums, cards, tuple(unrecorded))

    def _free(self, row: int, cards: Sequence[Card]) -> FreeNode:
        table = self._cache.table
        cpu, memory = (max(0, int(table.allocatable[row, at] - table.requested[row, at])) for at in (0, 1))
        gpus = [max(0, WHOLE - each.percent) for each in cards if each.type == GPU and each.healthy]
        return FreeNode(row, cpu, memory, gpus)

    def _cards(self, name: str, row: int) -> tuple[Card, ...]:
        shares: dict[tuple[str, int], list[tuple[str, AllocatedDevice]]] = {}
        for each in self._cache.on.get(row, {}).values():
            for device in allocation_of(each.allocation):
                shares.setdefault((device.type, device.minor), []).append((each.name, device))
        return tuple(_listed(self._devices[name].spec.devices, shares))


def _listed(
    devices: Sequence[DeviceInfo], shares: dict[tuple[str, int], list[tuple[str, AllocatedDevice]]]
) -> Iterator[Card]:
    known = {(info.type, info.minor): info for info in devices if info.minor is not None}
    for place in sorted({*known, *shares}):
        type_, minor = place
        info = known.get(place)
        total = _amounts(info)
        pods = sorted((pod, _percent(device, total)) for pod, device in shares.get(place, ()))
        topology = info.topology if info is not None else None
        yield Card(
            type=type_,
            minor=minor,
            id=info.id if info is not None else "",
            healthy=info is not None and info.health and bool(total),
            numa=topology.numa if topology is not None else -1,
            pcie=topology.pcie if topology is not None else "",
            pods=tuple(PodShare(pod, percent) for pod, percent in pods),
        )


def _amounts(info: DeviceInfo | None) -> dict[str, int]:
    with suppress(BadQuantity):
        return {name: size for name, size in amounts((info.resources if info else None) or {}).items() if size}
    return {}


def _percent(device: AllocatedDevice, total: dict[str, int]) -> int:
    """Returns the share of a device: the highest of its amounts; the whole where nothing is known of it."""
    parts = [size * PERCENT // total[name] for name, size in device.amounts if total.get(name)]
    return max(parts, default=PERCENT)


def _has_gpu(assignment: Assignment) -> bool:
    return any(device.type == GPU for device in allocation_of(assignment.allocation))


def _gpus(devices: Sequence[DeviceInfo]) -> bool:
    return any(each.type == GPU for each in devices)
