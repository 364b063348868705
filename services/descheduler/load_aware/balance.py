"""LowNodeLoad: which pods leave nodes whose measured usage is high.

Source: spec/descheduler.md 2.2, 2.5, 2.6, 2.8; upstream pkg/descheduler/framework/plugins/loadaware.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from services.descheduler.load_aware.anomaly_detector import Detector, Detectors
from services.descheduler.load_aware.arguments import LowNodeLoadArgs, PoolArgs
from services.descheduler.load_aware.classification import ClassifiedPool, NodeClass, classify
from services.descheduler.load_aware.evictions import Overload, evict_from
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.load_aware.node_fit_on_targets import TargetFit
from services.descheduler.load_aware.thresholds import Ints
from shared.domain.node_selection import meets


class Evictor(Protocol):
    """The rest of the framework, as this plugin needs it."""

    def filter(self, pod: PodOnNode) -> bool:
        """Reports whether the filter plugins let a pod move."""
        ...

    def is_exhausted(self) -> bool:
        """Reports whether no further pod may move in this cycle."""
        ...

    def evict(self, pod: PodOnNode, node: str, reason: str) -> bool:
        """Moves a pod; reports whether that was accepted."""
        ...


class PoolResult(NamedTuple):
    """The nodes of one pool.

    Attributes:
        selected: names of its nodes. classified: those with a usable report; None for a pool without nodes.
        overloads: of the sources, as they were before anything moved.
    """

    name: str
    selected: tuple[str, ...]
    classified: ClassifiedPool | None
    overloads: tuple[Overload, ...] = ()


class BalanceResult(NamedTuple):
    """The result of one cycle of the plugin.

    Attributes:
        processed: nodes that earlier pools used up.
        detectors, prod_detectors: node -> detector, afterwards.
    """

    pools: tuple[PoolResult, ...]
    processed: frozenset[str]
    detectors: dict[str, Detector]
    prod_detectors: dict[str, Detector]


class _Cycle(NamedTuple):
    """The inputs that all pools of a cycle have in common."""

    args: LowNodeLoadArgs
    evictor: Evictor
    node_detectors: Detectors
    prod_detectors: Detectors
    now_ns: int


def balance(
    args: LowNodeLoadArgs,
    nodes: Sequence[MeasuredNode],
    detectors: tuple[Mapping[str, Detector], Mapping[str, Detector]],
    evictor: Evictor,
    now_ns: int,
) -> BalanceResult:
    """Runs one cycle over all pools, in order.

    Args:
        nodes: those that the framework selected, sorted by name.
        detectors: of node usage and of prod usage, as the last cycle left them.
    """
    node_detectors, prod_detectors = (Detectors(dict(each), args.detector_timeout_ns, now_ns) for each in detectors)
    cycle = _Cycle(args, evictor, node_detectors, prod_detectors, now_ns)
    processed: set[str] = set()
    results = [] if args.paused else [_balance_pool(cycle, pool, nodes, processed) for pool in args.pools]
    return BalanceResult(tuple(results), frozenset(processed), node_detectors.known, prod_detectors.known)


def _balance_pool(cycle: _Cycle, pool: PoolArgs, nodes: Sequence[MeasuredNode], processed: set[str]) -> PoolResult:
    """Runs the gates of one pool in order, and evicts behind the last one; adds its sources to `processed`."""
    selector = pool.selector
    selected = [
        node
        for node in nodes
        if selector is None or (node.name not in processed and meets(selector, node.node.metadata.labels or {}))
    ]
    names = tuple(node.name for node in selected)
    if not selected:
        return PoolResult(pool.name, names, None)
    found = classify(selected, pool, cycle.args.expiration_ns, cycle.now_ns)
    high, prod_high = found.rows(NodeClass.HIGH), found.rows(NodeClass.PROD_HIGH)
    low, both, prod_low = (found.rows(each) for each in (NodeClass.LOW, NodeClass.BOTH_LOW, NodeClass.PROD_LOW))
    sources = _anomalous(found, high, cycle.node_detectors, pool)
    prod_sources = _anomalous(found, prod_high, cycle.prod_detectors, pool)
    targets = len(low) + len(both) + len(prod_low)
    if not (sources or prod_sources) or not targets:
        return PoolResult(pool.name, names, found)
    for row in (*low, *both):
        cycle.node_detectors.reset(found.nodes[row].name)
    for row in prod_low:
        cycle.prod_detectors.reset(found.nodes[row].name)
    if targets <= cycle.args.number_of_nodes or targets == len(selected):
        return PoolResult(pool.name, names, found)
    working = found._replace(usage=found.usage.copy(), prod_usage=found.prod_usage.copy())
    overloads = _evict(cycle, pool, working, sources, prod_sources)
    for rows, detectors in ((sources, cycle.node_detectors), (prod_sources, cycle.prod_detectors)):
        for row in rows:
            detectors.mark_normal(found.nodes[row].name)
    processed.update(found.nodes[row].name for row in high)
    return PoolResult(pool.name, names, found, tuple(overloads))


def _anomalous(found: ClassifiedPool, rows: Sequence[int], detectors: Detectors, pool: PoolArgs) -> list[int]:
    """Marks the nodes of a high class, and returns those that are anomalous."""
    return [row for row in rows if detectors.mark_abnormal(found.nodes[row].name, pool.anomaly)]


def _evict(
    cycle: _Cycle, pool: PoolArgs, found: ClassifiedPool, sources: Sequence[int], prod_sources: Sequence[int]
) -> list[Overload]:
    """Evicts in two phases: by the usage of nodes, then by that of their prod pods; returns the overloads met.

    The capacity of nodes that are low in both respects is shared: phase 2 has of it what phase 1 left.
    """
    low, both, prod_low = (found.rows(each) for each in (NodeClass.LOW, NodeClass.BOTH_LOW, NodeClass.PROD_LOW))
    width = len(found.percents.resources)
    spare = found.thresholds.high - found.usage[:, :width]
    prod_spare = found.thresholds.prod_high - found.prod_usage[:, :width]
    in_both, prod_in_both = spare[both].sum(axis=0), prod_spare[both].sum(axis=0)
    budget: Ints = spare[low].sum(axis=0) + in_both
    prod_capacity: Ints = prod_spare[prod_low].sum(axis=0)
    overloads: list[Overload] = []
    if low or both:
        overloads += _phase(cycle, pool, found, sources, [*low, *both], budget, prod=False)
    if prod_low or both:
        left = prod_budget(prod_capacity, prod_in_both, in_both, budget)
        overloads += _phase(cycle, pool, found, prod_sources, [*prod_low, *both], left, prod=True)
    return overloads


def prod_budget(prod_low: Ints, prod_both: Ints, both: Ints, left: Ints) -> Ints:
    """Returns what prod pods may use: int64[resources].

        B2 = availProd + min(availPB, min(availBoth, B1 left by phase 1))

    Source: spec/descheduler.md 2.8, and X11 of section 6.
    """
    return prod_low + np.minimum(prod_both, np.minimum(both, left))


def _phase(
    cycle: _Cycle,
    pool: PoolArgs,
    found: ClassifiedPool,
    sources: Sequence[int],
    targets: Sequence[int],
    budget: Ints,
    *,
    prod: bool,
) -> list[Overload]:
    """Evicts from the sources, the one with the highest score first; changes the budget and the usage of `found`."""
    fit = TargetFit(found, targets, prod=prod) if cycle.args.node_fit else None
    detectors = cycle.prod_detectors if prod else cycle.node_detectors
    usage = found.prod_usage if prod else found.usage
    scores = node_scores(usage, found.capacity, found.resources, pool.weights)
    ordered = sorted(sources, key=lambda row: -scores[row])
    overloads = []
    for row in ordered:
        overload = Overload.of(found, row, prod=prod)
        evict_from(cycle.args, pool, found, overload, fit, cycle.evictor, detectors, budget)
        overloads.append(overload)
    return overloads


def node_scores(usage: Ints, capacity: Ints, resources: Sequence[str], weights: Mapping[str, int]) -> list[int]:
    """Returns the order of sources, highest first: int[nodes].

        score = floor( sum_r w[r] * floor(min(u[r], A[r]) * 1000 / A[r]) / sum_r w[r] ); 0 where A is 0

    Source: spec/descheduler.md 2.7.
    """
    weight = np.array([weights.get(name, 0) for name in resources], np.int64)
    total = int(weight.sum())
    if not total:
        return [0] * len(usage)
    capped = np.minimum(usage, capacity)
    shares = np.where(capacity > 0, capped * 1000 // np.maximum(capacity, 1), 0)
    scores: list[int] = ((shares * weight).sum(axis=1) // total).tolist()
    return scores
