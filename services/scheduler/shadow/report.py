"""Sums up the comparison of another scheduler's placements with ours, from the log alone, for `koord shadow report`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import sqrt

import msgspec

from services.scheduler.plugins.registry import text
from services.scheduler.shadow.placement_comparisons_fold import RESOURCES, Compared, ShadowHistory


class Gap(msgspec.Struct, frozen=True):
    """The difference of scores, of their placements with a lower score than ours: nearest-rank percentiles."""

    p50: int
    p90: int
    max: int


class RefusedBy(msgspec.Struct, frozen=True):
    """Pods on nodes that one of our filters rejects for one reason; `example` is one of them."""

    plugin: str
    code: str
    detail: str
    text: str
    pods: int
    example: str


class Spread(msgspec.Struct, frozen=True):
    """The distribution of a requested resource over the nodes, in percent of each node's allocatable."""

    max_percent: float
    mean_percent: float
    stddev_percent: float


class Balance(msgspec.Struct, frozen=True):
    """A requested resource as it is now, and as it would be with our choices (counterfactual_cluster.py)."""

    resource: str
    theirs: Spread
    ours: Spread


class NodeLoad(msgspec.Struct, frozen=True):
    """The requests on a node: cpu in milli-cores, memory in bytes."""

    node: str
    allocatable: dict[str, int]
    theirs: dict[str, int]
    ours: dict[str, int]


class Worst(msgspec.Struct, frozen=True):
    """A placement with a large gap, with each plugin's part of both totals."""

    pod: str
    pod_uid: str
    event: str
    at_ns: int
    gap: int
    theirs: str
    their_score: int
    their_parts: dict[str, int]
    ours: str
    score: int
    parts: dict[str, int]


class ShadowReport(msgspec.Struct, frozen=True):
    """The findings of shadow mode.

    Attributes:
        schedulers: the other schedulers; profiles: the profiles of ours that evaluated.
        first_ns, last_ns: instants of the first and the last compared binding; 0 without one.
        compared: number of placements; the five numbers from `same_node` on add up to it.
        not_compared: reason (a key of history.NOT_COMPARED) -> number of bindings.
        same_node: they chose our node. equal_score: another node with the same score; lower_score: one with less.
        refused: a node that our filters reject, while another passes. found_none: no node passes our filters.
        refused_by: of `refused` and `found_none`: the reasons, most pods first; a pod counts in each of its reasons.
        balance, nodes: over all pods that run at the end of the log, of every scheduler.
    """

    schedulers: tuple[str, ...]
    profiles: tuple[str, ...]
    first_ns: int
    last_ns: int
    compared: int
    not_compared: dict[str, int]
    same_node: int
    equal_score: int
    lower_score: int
    refused: int
    found_none: int
    gap: Gap
    refused_by: tuple[RefusedBy, ...]
    balance: tuple[Balance, ...]
    nodes: tuple[NodeLoad, ...]
    worst: tuple[Worst, ...]


def chosen(log: ShadowHistory, schedulers: Collection[str] = (), since_ns: int = 0) -> list[Compared]:
    """Returns the comparisons that a report covers; arguments as of `report`."""
    return [
        one
        for one in log.compared.values()
        if (not schedulers or one.found.scheduler in schedulers) and one.found.as_of_ns >= since_ns
    ]


def report(
    log: ShadowHistory,
    counterfactual: Mapping[str, str],
    schedulers: Collection[str] = (),
    since_ns: int = 0,
    worst: int = 10,
) -> ShadowReport:
    """Sums up the comparisons.

    Args:
        counterfactual: uid of a compared pod -> its node had our choices been carried out.
        schedulers: whose placements to report; empty for all that were compared.
        since_ns: only bindings recorded from then on.
        worst: number of single placements to list.
    """
    found = chosen(log, schedulers, since_ns)
    names = sorted(schedulers or {one.found.scheduler for one in found})
    passed = [one for one in found if not one.found.their_rejections]
    apart = [one for one in passed if one.found.our_node != one.found.their_node]
    lower = [one for one in apart if one.found.gap > 0]
    outside = [one for one in found if one.found.their_rejections]
    missed = Counter(
        bound.reason
        for uid, bound in log.bound.items()
        if bound.scheduler in names and bound.at_ns >= since_ns and uid not in log.compared
    )
    instants = [one.found.as_of_ns for one in found]
    nodes = _nodes(log, counterfactual)
    return ShadowReport(
        schedulers=tuple(names),
        profiles=tuple(sorted({one.found.profile for one in found})),
        first_ns=min(instants, default=0),
        last_ns=max(instants, default=0),
        compared=len(found),
        not_compared=dict(sorted(missed.items())),
        same_node=len(passed) - len(apart),
        equal_score=len(apart) - len(lower),
        lower_score=len(lower),
        refused=sum(1 for one in outside if one.found.our_node),
        found_none=sum(1 for one in outside if not one.found.our_node),
        gap=_gap([one.found.gap for one in lower]),
        refused_by=_refused_by(outside),
        balance=tuple(_balance(resource, nodes) for resource in RESOURCES),
        nodes=nodes,
        worst=tuple(_worst(one) for one in sorted(lower, key=lambda one: (-one.found.gap, one.found.pod))[:worst]),
    )


def _gap(gaps: Sequence[int]) -> Gap:
    ordered = sorted(gaps)
    return Gap(p50=_percentile(ordered, 50), p90=_percentile(ordered, 90), max=ordered[-1] if ordered else 0)


def _percentile(ordered: Sequence[int], percent: int) -> int:
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def _refused_by(outside: Sequence[Compared]) -> tuple[RefusedBy, ...]:
    examples: dict[tuple[str, str, str], list[str]] = {}
    for one in outside:
        for reason in one.found.their_rejections:
            examples.setdefault((reason.plugin, reason.code, reason.detail), []).append(one.found.pod)
    return tuple(
        RefusedBy(plugin, code, detail, text(code, detail), len(pods), min(pods))
        for (plugin, code, detail), pods in sorted(examples.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _nodes(log: ShadowHistory, counterfactual: Mapping[str, str]) -> tuple[NodeLoad, ...]:
    """Returns the requests per node now, and with our choices."""
    allocatable = log.allocatable()
    loads = [
        NodeLoad(node, sizes, dict.fromkeys(RESOURCES, 0), dict.fromkeys(RESOURCES, 0))
        for node, sizes in allocatable.items()
    ]
    by_name = {load.node: load for load in loads}
    for uid, (node, request) in log.running().items():
        for resource, size in request.items():
            if node in by_name:
                by_name[node].theirs[resource] += size
            if (ours := counterfactual.get(uid, node)) in by_name:
                by_name[ours].ours[resource] += size
    return tuple(loads)


def _balance(resource: str, nodes: Sequence[NodeLoad]) -> Balance:
    sized = [load for load in nodes if load.allocatable[resource]]
    theirs, ours = (
        _spread([100 * getattr(load, whose)[resource] / load.allocatable[resource] for load in sized])
        for whose in ("theirs", "ours")
    )
    return Balance(resource, theirs, ours)


def _spread(percents: Sequence[float]) -> Spread:
    if not percents:
        return Spread(0.0, 0.0, 0.0)
    mean = sum(percents) / len(percents)
    variance = sum((percent - mean) ** 2 for percent in percents) / len(percents)
    return Spread(round(max(percents), 2), round(mean, 2), round(sqrt(variance), 2))


def _worst(compared: Compared) -> Worst:
    found = compared.found
    return Worst(
        pod=found.pod,
        pod_uid=found.pod_uid,
        event=compared.event,
        at_ns=found.as_of_ns,
        gap=found.gap,
        theirs=found.their_node,
        their_score=found.their_score,
        their_parts=found.their_plugin_scores or {},
        ours=found.our_node,
        score=found.our_score,
        parts=next((best.plugin_scores for best in found.evaluation.best if best.node == found.our_node), {}),
    )
