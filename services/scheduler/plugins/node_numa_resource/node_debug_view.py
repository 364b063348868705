"""Debug view of a node's CPUs and NUMA zones and of the pods that hold them, as JSON. Source: spec/api.md 6.2."""

from collections.abc import Iterable
from typing import Any

from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation
from shared.domain.cpu_set import cpu_list


def node_view(node: NumaNode, pods: Iterable[tuple[str, Allocation]]) -> dict[str, Any]:
    """The view of a node; amounts as integers, cpu in milli-cores.

    Args:
        pods: (uid, allocation), oldest first.
    """
    options, free = node.options, node.free_cpus
    return {
        "topologyKnown": options.known,
        "topologyValid": options.topology.valid,
        "cpus": cpu_list(options.topology.all),
        "reservedCPUs": cpu_list(options.reserved),
        "allocatedCPUs": cpu_list(node.usage.cpus.allocated),
        "availableCPUs": "" if isinstance(free, Rejection) else cpu_list(free),
        "numaTopologyPolicy": options.numa_policy,
        "cpuBindPolicy": options.bind_policy,
        "amplificationRatios": dict(sorted(options.ratios.items())),
        "numaNodes": [
            {
                "node": zone.numa,
                "allocatable": dict(sorted(zone.total.items())),
                "allocated": dict(sorted(node.allocated[zone.numa].items())),
                "available": dict(sorted(node.free[zone.numa].items())),
                "use": str(node.usage.use(zone.numa)),
            }
            for zone in options.zones
        ],
        "pods": [
            {
                "uid": uid,
                "cpuset": cpu_list(allocated.cpus),
                "exclusivePolicy": allocated.exclusive,
                "numaNodeResources": [
                    {"node": numa, "resources": dict(sorted(size.items()))} for numa, size in allocated.zones
                ],
            }
            for uid, allocated in pods
        ],
        "problems": list(options.problems),
    }
