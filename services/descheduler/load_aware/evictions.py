"""The evictions from one source node, pod by pod, for as long as it is overloaded and the targets have capacity.

Source: spec/descheduler.md 2.8.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from services.descheduler.load_aware.anomaly_detector import Detectors
from services.descheduler.load_aware.arguments import LowNodeLoadArgs, PoolArgs
from services.descheduler.load_aware.classification import PODS, ClassifiedPool
from services.descheduler.load_aware.measured_node import Amounts, PodOnNode
from services.descheduler.load_aware.node_fit_on_targets import TargetFit
from services.descheduler.load_aware.pod_order import order_key
from services.descheduler.load_aware.thresholds import Ints
from shared.domain.node_selection import meets


class _Evictor(Protocol):
    def filter(self, pod: PodOnNode) -> bool: ...

    def is_exhausted(self) -> bool: ...

    def evict(self, pod: PodOnNode, node: str, reason: str) -> bool: ...


class Overload(NamedTuple):
    """A source node as it was before anything left it.

    Attributes:
        row: in its pool. prod: its prod pods are the cause.
        usage, limits: by overloaded resource.
    """

    node: str
    row: int
    prod: bool
    usage: Mapping[str, int]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, pool: ClassifiedPool, row: int, *, prod: bool) -> "Overload":
        """Returns the overload of a node as it is now."""
        over = overloaded(pool, row, prod=prod)
        usage = pool.prod_usage if prod else pool.usage
        limits = pool.thresholds.prod_high if prod else pool.thresholds.high
        columns = {name: pool.percents.resources.index(name) for name in over}
        return cls(
            pool.nodes[row].name,
            row,
            prod,
            {name: int(usage[row, column]) for name, column in columns.items()},
            {name: int(limits[row, column]) for name, column in columns.items()},
        )


def overloaded(pool: ClassifiedPool, row: int, *, prod: bool) -> dict[str, int]:
    """Returns the resources of a node that are above their high threshold, each with its excess, by name."""
    names = pool.percents.resources
    usage = (pool.prod_usage if prod else pool.usage)[row, : len(names)]
    excess = usage - (pool.thresholds.prod_high if prod else pool.thresholds.high)[row]
    return {name: over for name, over in zip(names, excess.tolist(), strict=True) if over > 0}


def evict_from(
    args: LowNodeLoadArgs,
    pool: PoolArgs,
    found: ClassifiedPool,
    source: Overload,
    fit: TargetFit | None,
    evictor: _Evictor,
    detectors: Detectors,
    budget: Ints,
) -> None:
    """Evicts pods of a node until it is no longer overloaded, or one resource of the budget is used up.

    The check comes before each move, so a move may exceed the budget. Changes `budget` and the usage of `found`.
    """
    node, row, prod = found.nodes[source.row], source.row, source.prod
    removable = [
        pod
        for pod in node.pods
        if (pod.is_prod or not prod)
        and _may_move(args, pod, evictor)
        and (fit is None or (pod.key in node.pod_usage and fit.fits(pod, node.pod_usage[pod.key])))
    ]
    if evictor.is_exhausted():
        return
    removable.sort(key=order_key(node.pod_usage, overloaded(found, row, prod=prod), pool.weights))
    for pod in removable:
        if not overloaded(found, row, prod=prod):
            detectors.reset(node.name)
            return
        if not (budget > 0).all():
            return
        if not _may_move(args, pod, evictor):
            continue
        reason = reason_text(found, row, prod=prod)
        if not args.dry_run and not evictor.evict(pod, node.name, reason):
            continue
        if pod.key in node.pod_usage:
            _subtract(found, row, node.pod_usage[pod.key], budget, prod=prod)


def reason_text(found: ClassifiedPool, row: int, *, prod: bool) -> str:
    """Returns the reason of an eviction: each overloaded resource that has a configured threshold, with its usage.

    In deviation mode the configured threshold is the deviation, not the effective one: a quirk of upstream.
    """
    percents = found.percents.prod_high if prod else found.percents.high
    usage, scope = (found.prod_usage, "prod") if prod else (found.usage, "node")
    parts = []
    for name in sorted(percents.keys() & overloaded(found, row, prod=prod).keys()):
        column = found.percents.resources.index(name)
        capacity = int(found.capacity[row, column])
        share = 100 * int(usage[row, column]) / capacity if capacity else 0.0
        parts.append(f"{scope} {name} usage({share:.2f}%)>threshold({percents[name]:.2f}%)")
    return f"node is overutilized, {', '.join(parts)}"


def _may_move(args: LowNodeLoadArgs, pod: PodOnNode, evictor: _Evictor) -> bool:
    """Reports whether a pod's namespace, the filter plugins and the pod selectors let it move."""
    namespace = pod.pod.metadata.namespace
    if args.included is not None and namespace not in args.included:
        return False
    if args.excluded is not None and namespace in args.excluded:
        return False
    if not evictor.filter(pod):
        return False
    labels = pod.pod.metadata.labels or {}
    return not args.pod_selectors or any(meets(selector, labels) for selector in args.pod_selectors)


def _subtract(found: ClassifiedPool, row: int, used: Amounts, budget: Ints, *, prod: bool) -> None:
    for column, name in enumerate(found.percents.resources):
        amount = 1 if name == PODS else used.get(name, 0)
        budget[column] -= amount
        found.usage[row, column] -= amount
        if prod:
            found.prod_usage[row, column] -= amount
