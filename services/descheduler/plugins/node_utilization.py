"""LowNodeUtilization and HighNodeUtilization: pods leave nodes by what is requested on them, not by what is measured.

LowNodeUtilization moves pods from nodes above the target to low ones; HighNodeUtilization empties low nodes, so that
they can be removed.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.framework.node_affinity_and_taints import tolerates_taints
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.plugins.node_utilization_args import ALL, Percents, UtilizationArgs
from services.descheduler.plugins.priority_order import priority_order
from shared.events.descheduling import Cause

REQUESTS = "requests"
"""Scope of a cause that is about requests."""

_BASIC = ("cpu", "memory", "pods")


class UtilizedNode(NamedTuple):
    """A node.

    Attributes:
        used: resource -> amount that its pods request, and their number; changed while pods leave.
        cap: resource -> amount up to which it may be used.
    """

    node: MeasuredNode
    used: dict[str, int]
    cap: Amounts

    @property
    def is_above(self) -> bool:
        """More than its cap is used in one resource."""
        return any(size > self.cap[name] for name, size in self.used.items())


class Utilization(NamedTuple):
    """The nodes by class; the others are appropriate.

    Attributes:
        high: in LowNodeUtilization above the target, in HighNodeUtilization all that are not low and take pods.
    """

    low: Sequence[UtilizedNode]
    high: Sequence[UtilizedNode]


def low_node_utilization(context: CycleContext) -> Findings:
    """Chooses pods of nodes above the target, the one with most requests first, while low nodes have room."""
    args: UtilizationArgs = context.args
    found = _classified(context.nodes, args)
    if _is_nothing_to_do(found, args, len(context.nodes)):
        return Findings()
    sources = sorted(found.high, key=lambda each: -sum(each.used.values()))
    causes = [cause for each in sources for cause in _causes(each)]
    _evict(context, sources, found.low, lambda source: source.is_above)
    return Findings(tuple(causes), tuple(each.node.name for each in sources))


def high_node_utilization(context: CycleContext) -> Findings:
    """Chooses pods of low nodes, the one with fewest requests first, while the others have room."""
    args: UtilizationArgs = context.args
    found = _classified(context.nodes, args)
    if _is_nothing_to_do(found, args, len(context.nodes)):
        return Findings()
    sources = sorted(found.low, key=lambda each: sum(each.used.values()))
    _evict(context, sources, found.high, lambda _: True)
    return Findings(sources=tuple(each.node.name for each in sources))


def _classified(nodes: Sequence[MeasuredNode], args: UtilizationArgs) -> Utilization:
    used = [requested(node, args.low) for node in nodes]
    shares = [_percents(each, node.allocatable) for each, node in zip(used, nodes, strict=True)]
    low_limits, high_limits = _limits(args, shares)
    low: list[UtilizedNode] = []
    high: list[UtilizedNode] = []
    for node, amounts, share in zip(nodes, used, shares, strict=True):
        found = UtilizedNode(node, amounts, _cap(node, high_limits, amounts))
        is_low = all(share.get(name, 0) <= limit for name, limit in low_limits.items())
        is_over = any(share.get(name, 0) > limit for name, limit in high_limits.items())
        takes_pods = not node.node.spec.unschedulable
        if is_low and (args.packs or takes_pods):
            low.append(found)
        elif takes_pods if args.packs else is_over:
            high.append(found)
    return Utilization(low, high)


def _is_nothing_to_do(found: Utilization, args: UtilizationArgs, nodes: int) -> bool:
    low = len(found.low)
    return not low or low <= args.number_of_nodes or low == nodes or not found.high


def requested(node: MeasuredNode, also: Iterable[str]) -> dict[str, int]:
    """Returns what the pods of a node request of cpu, memory and other resources, and their number."""
    names = dict.fromkeys((*_BASIC, *sorted(also)))
    return {name: len(node.pods) if name == "pods" else node.requested.get(name, 0) for name in names}


def _percents(used: Amounts, offered: Mapping[str, int]) -> Percents:
    return {name: size / offered[name] * 100 if offered[name] else 0 for name, size in used.items() if name in offered}


def _limits(args: UtilizationArgs, shares: Sequence[Percents]) -> tuple[Percents, Percents]:
    """Returns the percentages in force: those given, or their distance from the mean, from 0 to 100."""
    if not args.deviation:
        return args.low, args.high
    mean = {name: sum(each.get(name, 0) for each in shares) / len(shares) for name in args.low}
    low = {name: max(mean[name] - size, 0.0) for name, size in args.low.items()}
    return low, {name: min(mean[name] + size, ALL) for name, size in args.high.items()}


def _cap(node: MeasuredNode, limits: Percents, names: Iterable[str]) -> Amounts:
    """Returns trunc(percent * 0.01 * allocatable), in this order as upstream; all of a resource without a limit."""
    offered = node.allocatable
    return {
        name: int(limits[name] * 0.01 * offered.get(name, 0)) if name in limits else offered.get(name, 0)
        for name in names
    }


def _causes(source: UtilizedNode) -> list[Cause]:
    name, offered = source.node.name, source.node.allocatable
    return [
        Cause(name, REQUESTS, resource, size, source.cap[resource], offered.get(resource, 0))
        for resource, size in source.used.items()
        if size > source.cap[resource]
    ]


def _evict(
    context: CycleContext,
    sources: Sequence[UtilizedNode],
    targets: Sequence[UtilizedNode],
    goes_on: Callable[[UtilizedNode], bool],
) -> None:
    """Chooses pods of each source, while all targets together have something left of each resource."""
    args: UtilizationArgs = context.args
    names = targets[0].used
    left = {name: sum(each.cap[name] - each.used[name] for each in targets) for name in names}
    for source in sources:
        evicted = 0
        for pod in sorted(_removable(context, source), key=lambda each: priority_order(each.pod)):
            if not goes_on(source) or min(left.values()) <= 0 or evicted == args.per_node:
                break
            if not any(tolerates_taints(each.node.node, pod.pod) for each in targets):
                continue
            if context.evictor.evict(pod, source.node.name, _reason(source)):
                evicted += 1
                for name in names:
                    size = 1 if name == "pods" else pod.requests.get(name, 0)
                    left[name] -= size
                    source.used[name] -= size


def _removable(context: CycleContext, source: UtilizedNode) -> list[PodOnNode]:
    args: UtilizationArgs = context.args
    return [
        pod
        for pod in source.node.pods
        if pod.pod.metadata.namespace not in args.excluded
        and (not args.requesting_only or _requests_any(pod, args.low))
        and context.evictor.filter(pod)
    ]


def _requests_any(pod: PodOnNode, names: Iterable[str]) -> bool:
    """Reports whether a container of a pod requests one of these resources, be it 0 of it."""
    spec = pod.pod.spec
    requests = [each.resources.requests or {} for each in (*spec.containers, *spec.init_containers) if each.resources]
    return any(name in each for name in names for each in requests)


def _reason(source: UtilizedNode) -> str:
    over = [f"{name} {size} > {source.cap[name]}" for name, size in source.used.items() if size > source.cap[name]]
    return (
        f"node has more requests than its target, {', '.join(over)}" if over else "node has few requests, to be emptied"
    )
