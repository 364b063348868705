"""The arithmetic of a quota's runtime, step by step, and the pods in it.

The code that decides computes every number, so that the explanation cannot differ from the decision.
"""

from collections.abc import Iterable

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.runtime.fair_share import Child, apportion
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, total
from shared.errors import KoordError
from shared.kube.elastic_quota import RESERVED, ROOT

MAX_PODS = 20
"""Pods listed, at most."""


class UnknownQuota(KoordError):
    """No quota has that name."""

    def __init__(self, name: str, there: Iterable[str]) -> None:
        from shared.closest_name import did_you_mean  # only here: it takes a tenth of a command's start

        meant = did_you_mean(name, there)
        super().__init__(f"there is no quota {name!r}{meant}; `koord get quotas` shows those there are")


class QuotaWasRejected(KoordError):
    """The object of a quota is rejected, and no valid declaration came before."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"quota {name} is rejected, so it has no runtime, and its pods wait: {reason}")


class ChildShare(msgspec.Struct, frozen=True):
    """The share of one child.

    Attributes:
        effective_min: below `min` where the minima do not all fit, above it where the use is guaranteed.
        request: of its pods and the quotas below it.
        demand: the part of the request that counts here: at most its max, and at least its min where it does not lend.
        base: its share before the remainder is divided.
        rounds: its portions of the remainder, round by round.
    """

    quota: str
    min: int
    effective_min: int
    request: int
    demand: int
    weight: int
    lends: bool
    base: int
    rounds: list[int]
    runtime: int


class ShareRound(msgspec.Struct, frozen=True):
    """One round: the remainder, and the sum of the weights of the children with more demand."""

    remainder: int
    weights: int


class LevelShares(msgspec.Struct, frozen=True):
    """The children of one parent in one resource.

    Attributes:
        total: of the parent; `reserved`: the use of the system and default groups; `capacity`: the difference, which
            is shared.
        minima: sum of the children's min.
        remainder: capacity less all base shares; below zero where the minima exceed the capacity and are not scaled.
        rounds: the division of the remainder.
        surplus, lent, borrowed, idle: surplus + lent = borrowed + idle.
    """

    parent: str
    resource: str
    total: int
    reserved: dict[str, int]
    capacity: int
    minima: int
    remainder: int
    rounds: list[ShareRound]
    children: list[ChildShare]
    surplus: int
    lent: int
    borrowed: int
    idle: int


class ExplainedPod(msgspec.Struct, frozen=True):
    """A pod of the quota; it waits until it is charged."""

    pod: str
    request: dict[str, int]
    charged: bool
    matched_by: str


class ShortResource(msgspec.Struct, frozen=True):
    """A resource of which a quota has less than its pods request.

    Attributes:
        bound: `max` where the runtime has reached it, so that only a higher one or the end of pods helps; else
            `runtime`, which follows from what the others leave.
        limit: the amount of the bound.
        waiting: sum of the requests of its own pods that wait.
    """

    resource: str
    bound: str
    limit: int
    used: int
    waiting: int


class RuntimeExplanation(msgspec.Struct, frozen=True):
    """A quota's runtime: the levels from the root down to it, and the pods in it.

    Attributes:
        short: resources in which its pods that wait do not all fit.
        below: use of each of its children.
        pods: its own, charged ones first; `more_pods`: number of the others, with the sums that these use and wait for.
    """

    quota: str
    tree: str
    runtime: dict[str, int]
    used: dict[str, int]
    levels: list[LevelShares]
    below: dict[str, dict[str, int]]
    pods: list[ExplainedPod]
    more_pods: int
    more_used: dict[str, int]
    more_waiting: dict[str, int]
    short: list[ShortResource] = msgspec.field(default_factory=list)


def explain(projection: LedgerProjection, quota: str) -> RuntimeExplanation:
    """Explains the runtime of a quota.

    Raises:
        UnknownQuota: no quota has that name.
        QuotaWasRejected: its object is rejected.
    """
    name, tree = tree_of(projection, quota)
    path = [info.name for info in reversed(tree.path(quota))]
    levels = [level(tree, parent, resource) for parent in path[:-1] for resource in tree.level_resources(parent)]
    info = tree.quotas[quota]
    attached = ((projection.pods.name(uid), projection.pods[uid]) for uid in projection.pods_of(quota))
    pods = sorted(
        (ExplainedPod(each, pod.request, pod.charged, pod.matched_by) for each, pod in attached),
        key=lambda pod: (not pod.charged, pod.pod),
    )
    rest = pods[MAX_PODS:]
    return RuntimeExplanation(
        quota,
        name,
        runtime=info.counted_runtime,
        used=dict(info.used),
        levels=levels,
        below={child: dict(tree.quotas[child].used) for child in sorted(info.children)},
        pods=pods[:MAX_PODS],
        more_pods=len(rest),
        more_used=total(pod.request for pod in rest if pod.charged),
        more_waiting=total(pod.request for pod in rest if not pod.charged),
        short=_short(info, total(pod.request for pod in pods if not pod.charged)),
    )


def _short(info: QuotaInfo, waiting: Amounts) -> list[ShortResource]:
    """Returns the resources in which use and waiting requests exceed the runtime; none of a quota without a limit."""
    found = []
    for resource, limit in sorted(info.runtime.items()):
        used, requested = info.used.get(resource, 0), waiting.get(resource, 0)
        if requested and used + requested > limit:
            bound = "max" if info.declared.max.get(resource) == limit else "runtime"
            found.append(ShortResource(resource, bound, limit, used, requested))
    return found


def level(tree: QuotaTree, parent: str, resource: str) -> LevelShares:
    """Explains how a parent's children share a resource, up to their runtimes."""
    quotas = sorted(tree.sharing_children(parent), key=lambda each: each.name)
    capacity = tree.level_capacity(parent).get(resource, 0)
    parts, unsatisfied = [], []
    remainder = capacity
    for info in quotas:
        effective_min = max(info.scaled_min.get(resource, 0), info.guaranteed.get(resource, 0))
        demand = info.demand.get(resource, 0)
        base = effective_min if demand > effective_min or not info.lends else demand
        child = Child(info.name, effective_min, demand, info.declared.weight.get(resource, 0), info.lends)
        if demand > effective_min:
            unsatisfied.append(child)
        remainder -= base
        parts.append((info, child, base))
    rounds, added = _divided(remainder, unsatisfied)
    children = [
        ChildShare(
            child.name,
            min=info.declared.min.get(resource, 0),
            effective_min=child.effective_min,
            request=info.child_request.get(resource, 0),
            demand=child.demand,
            weight=child.weight,
            lends=child.lends,
            base=base,
            rounds=added.get(child.name, []),
            runtime=base + sum(added.get(child.name, [])),
        )
        for info, child, base in parts
    ]
    effective_minima = sum(child.effective_min for child in children)
    groups = (tree.quotas[name] for name in RESERVED if name in tree.quotas) if parent == ROOT else ()
    return LevelShares(
        parent=parent,
        resource=resource,
        total=tree.total.get(resource, 0) if parent == ROOT else capacity,
        reserved={group.name: size for group in groups if (size := group.used.get(resource, 0))},
        capacity=capacity,
        minima=sum(each.min for each in children),
        remainder=remainder,
        rounds=rounds,
        children=children,
        surplus=capacity - effective_minima,
        lent=sum(max(0, each.effective_min - each.runtime) for each in children),
        borrowed=sum(max(0, each.runtime - each.effective_min) for each in children),
        idle=capacity - sum(each.runtime for each in children),
    )


def tree_of(projection: LedgerProjection, quota: str) -> tuple[str, QuotaTree]:
    """Returns the id of a quota's tree, and the tree.

    Raises:
        UnknownQuota: no quota has that name.
        QuotaWasRejected: its object is rejected.
    """
    name = projection.tree_of.get(quota)
    if name is None and quota in projection.rejected:
        raise QuotaWasRejected(quota, projection.rejected[quota])
    if name is None:
        raise UnknownQuota(quota, projection.tree_of)
    return name, projection.trees[name]


def _divided(remainder: int, unsatisfied: list[Child]) -> tuple[list[ShareRound], dict[str, list[int]]]:
    """Returns the rounds that divide the remainder, and the portions of each child."""
    rounds: list[ShareRound] = []
    added: dict[str, list[int]] = {}
    allocated = {child.name: child.effective_min for child in unsatisfied}
    weights = sum(child.weight for child in unsatisfied)
    while remainder > 0 and weights > 0:
        rounds.append(ShareRound(remainder, weights))
        portions = apportion(remainder, weights, [(child.weight, child.name) for child in unsatisfied])
        remainder, remaining = 0, []
        for child, portion in zip(unsatisfied, portions, strict=True):
            kept = min(portion, child.demand - allocated[child.name])
            remainder += portion - kept
            allocated[child.name] += kept
            added.setdefault(child.name, []).append(kept)
            if allocated[child.name] < child.demand:
                remaining.append(child)
        unsatisfied, weights = remaining, sum(child.weight for child in remaining)
    return rounds, added
