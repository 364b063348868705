"""Allocations as annotations of pods: written for the node agent, and read back.

    scheduling.koordinator.sh/resource-status
        {"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}}]}

Source: spec/scheduler-core.md 4.3, 4.9; upstream apis/extension/numa_aware.go.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus
from shared.domain.pod_annotations import RESOURCE_SPEC, ResourceSpec
from shared.domain.resource_status import ResourceStatus, ZoneShare
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import NANO, BadQuantity, amounts
from shared.kube.quantity_text import Notation, quantity_text, request_notations
from shared.kube.system_annotations import RESOURCE_STATUS

MAX_ALLOCATIONS = 4096
"""Number of allocations that are kept as read."""


def allocation_of(annotations: Mapping[str, str] | None) -> Allocation:
    """The allocation in annotations; an empty one where there is none or it cannot be read."""
    notes = annotations or {}
    text = notes.get(RESOURCE_STATUS)
    return _allocation(text, notes.get(RESOURCE_SPEC) or "{}") if text else Allocation()


@lru_cache(maxsize=MAX_ALLOCATIONS)
def _allocation(text: str, spec: str) -> Allocation:
    """The allocation in both annotations; equal texts have one object. Equal pods get the same CPUs on many nodes."""
    try:
        status = read_json(text, ResourceStatus)
        cpus = parse_cpus(status.cpuset)
        # A user may list a NUMA node twice: the order is by number alone, since amounts have none.
        shares = sorted(status.shares or (), key=lambda share: share.node)
        zones = tuple((share.node, amounts(share.resources)) for share in shares)
    except (msgspec.MsgspecError, BadCpuList, BadQuantity):
        return Allocation()
    return Allocation(cpus, _exclusive(spec), zones)


def annotations_for(pod: Pod, allocation: Allocation, bind: str, *, required: bool) -> dict[str, str]:
    """The annotations for an allocation: the status, and the bind policy that was applied where the pod names none.

    Args:
        bind: bind policy of its CPUs, empty for a pod without CPUs of its own.
    """
    notes = {RESOURCE_STATUS: _status_text(pod, allocation)}
    if bind:
        text = _spec_text((pod.metadata.annotations or {}).get(RESOURCE_SPEC), bind, required=required)
        if text is not None:
            notes[RESOURCE_SPEC] = text
    return notes


def _status_text(pod: Pod, allocation: Allocation) -> str:
    notations = request_notations(pod)

    def text(name: str, size: int) -> str:
        unit = NANO // 1000 if name == "cpu" else NANO
        return quantity_text(size * unit, notations.get(name, Notation.DECIMAL))

    shares = tuple(
        ZoneShare(numa, {name: text(name, size) for name, size in sorted(allocated.items())})
        for numa, allocated in allocation.zones
    )
    return msgspec.json.encode(ResourceStatus(cpu_list(allocation.cpus), shares or None)).decode()


def _spec_text(annotated: str | None, bind: str, *, required: bool) -> str | None:
    spec: ResourceSpec = read_json(annotated, ResourceSpec) if annotated else ResourceSpec()
    filled = spec
    if required and spec.required in ("", policy_names.DEFAULT_BIND):
        filled = msgspec.structs.replace(filled, required=bind)
    if spec.preferred == policy_names.DEFAULT_BIND or not (filled.required or spec.preferred):
        filled = msgspec.structs.replace(filled, preferred=bind)
    return None if filled == spec else msgspec.json.encode(filled).decode()


def _exclusive(text: str) -> str:
    try:
        spec: ResourceSpec = read_json(text, ResourceSpec)
    except msgspec.MsgspecError:
        return ""
    return spec.exclusive
