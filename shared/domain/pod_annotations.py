"""Annotations of pods that hold JSON with fields, written by their owners, and their types.

Source: spec/scheduler-core.md 4.2, spec/scheduler-workloads.md 3.3; upstream
apis/extension/{numa_aware,device_share}.go.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from shared.kube.selectors import LabelSelector
from shared.unknown_fields import unknown_fields

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"


class ResourceSpec(msgspec.Struct, frozen=True, rename={
    "required": "requiredCPUBindPolicy", "preferred": "preferredCPUBindPolicy", "exclusive": "preferredCPUExclusivePolicy",
}, omit_defaults=True):  # fmt: skip
    """The annotation RESOURCE_SPEC; fields in the order in which upstream writes them."""

    required: str = ""
    preferred: str = ""
    exclusive: str = ""


class NumaSpec(
    msgspec.Struct, frozen=True, rename={"policy": "numaTopologyPolicy", "exclusive": "singleNUMANodeExclusive"}
):
    """The annotation NUMA_SPEC."""

    policy: str = ""
    exclusive: str = ""


class DeviceHint(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation ALLOCATE_HINT has one for each type of devices."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class JointAllocate(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation JOINT_ALLOCATE."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class PartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation PARTITION_SPEC."""

    allocate_policy: str = ""
    ring_bus_bandwidth: str = "0"


TYPES: dict[str, Any] = {
    RESOURCE_SPEC: ResourceSpec,
    NUMA_SPEC: NumaSpec,
    ALLOCATE_HINT: dict[str, DeviceHint],
    JOINT_ALLOCATE: JointAllocate,
    PARTITION_SPEC: PartitionSpec,
}
"""Annotation -> the type into which it is decoded."""


_MOST, _LONGEST = 8, 4096


def fields_without_effect(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence about each field that nothing reads, of each annotation `_MOST` at most. A text that cannot be
    decoded refuses the pod by itself.
    """
    for name, kind in TYPES.items():
        if not (text := annotations.get(name)):
            continue
        if len(text) > _LONGEST:
            yield f"annotation {name} has more than {_LONGEST} characters: fields without an effect are not sought in it"
            continue
        try:
            document = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
        for field in islice(unknown_fields(kind, document), _MOST):
            yield f"annotation {name} has a field {field.path!r}, which has no effect{field.meant}"
