"""The arithmetic of a runtime, written out, and who holds a quota.

Every number is computed by the code that decides, so that what is explained is what happens.
"""

import msgspec

from services.quota_ledger.accounting.projection import AttachedPod, LedgerProjection
from services.quota_ledger.runtime.fair_share import Child, apportion
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import total
from shared.errors import KoordError
from shared.kube.elastic_quota import RESERVED, ROOT

MOST_PODS = 20


class UnknownQuota(KoordError):
    """There is no quota of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no quota {name!r}; `koord quota tree` shows those there are")


class ChildShare(msgspec.Struct, frozen=True):
    """How one child came to its share.

    Attributes:
        floor: its min in force: below `min` where the minima do not all fit, above where what is used is guaranteed.
        request: what is asked for in it.
        asked: what of that counts here: at most its max, and at least its min where it does not lend.
        certain: what it gets before anything is shared.
        rounds: what each round of sharing added to it.
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
    """What a round of sharing divides among those who ask for more, and what they weigh together."""

    remainder: int
    weights: int


class LevelShares(msgspec.Struct, frozen=True):
    """One set of siblings in one resource.

    Attributes:
        total: what there is; `reserved` what the system and default groups use of it, `capacity` what the siblings share.
        minima: what all their minima come to.
        left: what nobody has after what is certain; below zero where the minima exceed what there is and do not shrink.
        rounds: how that was shared.
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


class RuntimeExplanation(msgspec.Struct, frozen=True):
    """A quota's runtime: the levels from the root down to it, and who holds it.

    Attributes:
        below: what each of its children uses.
        pods: its own, those that use it first; what the `more_pods` that are not among them use and wait for.
    """

    quota: str
    tree: str
    runtime: dict[str, int]
    used: dict[str, int]
    levels: list[LevelShares]
    below: dict[str, dict[str, int]]
    pods: list[AttachedPod]
    more_pods: int
    more_used: dict[str, int]
    more_waiting: dict[str, int]


def explain(projection: LedgerProjection, quota: str) -> RuntimeExplanation:
    """How a quota came to its runtime.

    Raises:
        UnknownQuota: there is none of that name.
    """
    name, tree = tree_of(projection, quota)
    path = [info.name for info in reversed(tree.path(quota))]
    levels = [level(tree, parent, resource) for parent in path[:-1] for resource in tree.level_resources(parent)]
    info = tree.quotas[quota]
    pods = sorted(
        (projection.pods[uid] for uid in projection.pods_of.get(quota, ())), key=lambda pod: (not pod.charged, pod.pod)
    )
    rest = pods[MOST_PODS:]
    return RuntimeExplanation(
        quota,
        name,
        runtime=info.runtime,
        used=dict(info.used),
        levels=levels,
        below={child: dict(tree.quotas[child].used) for child in sorted(info.children)},
        pods=pods[:MOST_PODS],
        more_pods=len(rest),
        more_used=total(pod.request for pod in rest if pod.charged),
        more_waiting=total(pod.request for pod in rest if not pod.charged),
    )


def level(tree: QuotaTree, parent: str, resource: str) -> LevelShares:
    """The sharing among a parent's children, step by step; ends in the runtimes that were granted."""
    quotas = sorted(tree.sharing_children(parent), key=lambda each: each.name)
    capacity = tree.level_capacity(parent).get(resource, 0)
    steps, unsatisfied = [], []
    remainder = capacity
    for info in quotas:
        effective_min = max(info.scaled_min.get(resource, 0), info.guaranteed.get(resource, 0))
        demand = info.demand.get(resource, 0)
        base = effective_min if demand > effective_min or not info.lends else demand
        child = Child(info.name, effective_min, demand, info.declared.weight.get(resource, 0), info.lends)
        if demand > effective_min:
            unsatisfied.append(child)
        remainder -= base
        steps.append((info, child, base))
    rounds, added = _shared(remainder, unsatisfied)
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
        for info, child, base in steps
    ]
    scaled_mins = sum(step.effective_min for step in children)
    groups = (tree.quotas[name] for name in RESERVED if name in tree.quotas) if parent == ROOT else ()
    return LevelShares(
        parent=parent,
        resource=resource,
        total=tree.total.get(resource, 0) if parent == ROOT else capacity,
        reserved={group.name: size for group in groups if (size := group.used.get(resource, 0))},
        capacity=capacity,
        minima=sum(step.min for step in children),
        remainder=remainder,
        rounds=rounds,
        children=children,
        surplus=capacity - scaled_mins,
        lent=sum(max(0, step.effective_min - step.runtime) for step in children),
        borrowed=sum(max(0, step.runtime - step.effective_min) for step in children),
        idle=capacity - sum(step.runtime for step in children),
    )


def tree_of(projection: LedgerProjection, quota: str) -> tuple[str, QuotaTree]:
    """The tree that a quota is in, with its name.

    Raises:
        UnknownQuota: there is none of that name.
    """
    name = projection.tree_of.get(quota)
    if name is None:
        raise UnknownQuota(quota)
    return name, projection.trees[name]


def _shared(remainder: int, unsatisfied: list[Child]) -> tuple[list[ShareRound], dict[str, list[int]]]:
    """The rounds in which what is left is shared, and what each round adds to each child."""
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
