"""The annotation `scheduling.koordinator.sh/resource-status`: CPUs and NUMA amounts of a pod on its node.

    {"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}}]}

Source: spec/scheduler-core.md 4.9; upstream apis/extension/numa_aware.go.
"""

from collections.abc import Iterable

import msgspec

from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.quantity_text import notation_of, quantity_text


class ZoneShare(msgspec.Struct, frozen=True):
    """Amounts of one NUMA node."""

    node: int = 0
    resources: dict[str, str] = {}


class ResourceStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename={"shares": "numaNodeResources"}):
    """The annotation as written."""

    cpuset: str = ""
    shares: tuple[ZoneShare, ...] | None = None


def remaining_status(text: str, used: Iterable[str]) -> str:
    """Returns what pods leave of CPUs and NUMA amounts that are held for them, as the annotation; empty for nothing.

    A pod takes away the CPUs that it has of these, and of each amount at most what is there.

    Args:
        text: of what is held; one that cannot be read is returned as it is.
        used: of the pods; one that cannot be read takes nothing.
    """
    try:
        status: ResourceStatus = read_json(text, ResourceStatus)
        cpus, left = parse_cpus(status.cpuset), _amounts(status)
    except (msgspec.MsgspecError, BadCpuList, BadQuantity):
        return text
    for each in used:
        try:
            own: ResourceStatus = read_json(each, ResourceStatus)
            taken, amounts = parse_cpus(own.cpuset), _amounts(own)
        except (msgspec.MsgspecError, BadCpuList, BadQuantity):
            continue
        cpus -= taken
        for key in left.keys() & amounts.keys():
            left[key] = max(0, left[key] - amounts[key])
    shares = [
        ZoneShare(
            share.node,
            {
                name: quantity_text(left[share.node, name], notation_of(size))
                for name, size in share.resources.items()
                if left[share.node, name]
            },
        )
        for share in status.shares or ()
    ]
    kept = tuple(share for share in shares if share.resources)
    if not cpus and not kept:
        return ""
    return msgspec.json.encode(ResourceStatus(cpu_list(cpus) if cpus else "", kept or None)).decode()


def _amounts(status: ResourceStatus) -> dict[tuple[int, str], int]:
    """NUMA node and resource -> amount, in nanos."""
    return {(share.node, name): nanos(size) for share in status.shares or () for name, size in share.resources.items()}
