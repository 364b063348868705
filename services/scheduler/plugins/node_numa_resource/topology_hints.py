"""Topology hints of a node: for each resource, the sets of NUMA nodes that are sufficient, and the preferred ones.

Source: spec/scheduler-core.md 4.8; upstream pkg/scheduler/plugins/nodenumaresource/resource_manager.go,
GetTopologyHints.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode, allocate
from services.scheduler.plugins.node_numa_resource.hint_combinations import Hint, Mask
from services.scheduler.plugins.node_numa_resource.pod_requirements import NodeRequest
from services.scheduler.plugins.node_numa_resource.policy_names import RESTRICTED
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies, score
from services.scheduler.plugins.node_numa_resource.topology_manager import mask_of, numas_of

MAX_MASKS = 1024
"""Number of sets of NUMA nodes that are considered."""


def hints_of(
    node: NumaNode, request: NodeRequest, policy: str, strategies: Strategies, widest: int = 64
) -> dict[str, list[Hint]] | Rejection:
    """Hints of the resources that the node's zones have, by resource; an empty list where no set is sufficient.

    Args:
        widest: number of NUMA nodes that a hint may have.
    """
    zones = node.options.zones
    lacking = Rejection((Reason("InsufficientNumaNodes"),))
    if not zones or (request.required and isinstance(node.free_cpus, Rejection)):
        return lacking
    room = node.room(request)
    total = {zone.numa: zone.total for zone in zones}
    resources = sorted({name for zone in zones for name in zone.total} & request.requests.keys())
    without = {name: mask_of(numa for numa in room if not room[numa].get(name, 0)) for name in resources}
    least = dict.fromkeys(resources, len(zones))
    found: dict[str, list[Hint]] = {name: [] for name in resources}
    for mask in masks_of([zone.numa for zone in zones], widest):
        usable = [name for name in resources if not without[name] & mask]
        if not usable or isinstance(allocate(node, request, mask), Rejection):
            continue
        there = numas_of(mask)
        sums: dict[str, int] = {}
        allocated: dict[str, int] = {}
        for name in {name for numa in there for name in total[numa]}:
            sums[name] = sum(total[numa].get(name, 0) for numa in there)
            allocated[name] = max(0, sums[name] - sum(room[numa].get(name, 0) for numa in there))
        points = score(strategies.of_zones, strategies.weights, sums, allocated, request.requests)
        for name in usable:
            found[name].append(Hint(mask, preferred=False, score=points))
            least[name] = min(least[name], len(there))
    return {
        name: [
            hint._replace(preferred=policy == RESTRICTED or (hint.mask or 0).bit_count() == least[name])
            for hint in hints
        ]
        for name, hints in found.items()
    }


def masks_of(numas: Sequence[int], widest: int) -> Iterator[Mask]:
    """All sets of NUMA nodes but the empty one: small ones first, then in the order of their members.

    Beyond ten NUMA nodes, only small sets up to MAX_MASKS of them, and the set of all.
    """
    left = MAX_MASKS
    for size in range(1, min(len(numas), widest) + 1):
        left -= comb(len(numas), size)
        if left >= 0 or size == len(numas):
            yield from (mask_of(chosen) for chosen in combinations(numas, size))
