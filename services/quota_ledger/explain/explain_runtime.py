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
    floor: int
    request: int
    asked: int
    weight: int
    lends: bool
    certain: int
    rounds: list[int]
    runtime: int


class ShareRound(msgspec.Struct, frozen=True):
    """What a round of sharing divides among those who ask for more, and what they weigh together."""

    left: int
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
    left: int
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


def explain(books: LedgerProjection, quota: str) -> RuntimeExplanation:
    """How a quota came to its runtime.

    Raises:
        UnknownQuota: there is none of that name.
    """
    name, tree = tree_of(books, quota)
    path = [account.name for account in reversed(tree.path(quota))]
    levels = [level(tree, parent, resource) for parent in path[:-1] for resource in tree.dimensions(parent)]
    account = tree.accounts[quota]
    pods = sorted((books.pods[uid] for uid in books.pods_of.get(quota, ())), key=lambda pod: (not pod.charged, pod.pod))
    rest = pods[MOST_PODS:]
    return RuntimeExplanation(
        quota,
        name,
        runtime=account.runtime,
        used=dict(account.used),
        levels=levels,
        below={child: dict(tree.accounts[child].used) for child in sorted(account.children)},
        pods=pods[:MOST_PODS],
        more_pods=len(rest),
        more_used=total(pod.request for pod in rest if pod.charged),
        more_waiting=total(pod.request for pod in rest if not pod.charged),
    )


def level(tree: QuotaTree, parent: str, resource: str) -> LevelShares:
    """The sharing among a parent's children, step by step; ends in the runtimes that were granted."""
    accounts = sorted(tree.siblings(parent), key=lambda each: each.name)
    capacity = tree.level_capacity(parent).get(resource, 0)
    steps, hungry = [], []
    left = capacity
    for account in accounts:
        floor = max(account.scaled_min.get(resource, 0), account.guaranteed.get(resource, 0))
        asked = account.asked.get(resource, 0)
        certain = floor if asked > floor or not account.lends else asked
        child = Child(account.name, floor, asked, account.declared.weight.get(resource, 0), account.lends)
        if asked > floor:
            hungry.append(child)
        left -= certain
        steps.append((account, child, certain))
    rounds, added = _shared(left, hungry)
    children = [
        ChildShare(
            child.name,
            min=account.declared.min.get(resource, 0),
            floor=child.floor,
            request=account.child_request.get(resource, 0),
            asked=child.ask,
            weight=child.weight,
            lends=child.lends,
            certain=certain,
            rounds=added.get(child.name, []),
            runtime=certain + sum(added.get(child.name, [])),
        )
        for account, child, certain in steps
    ]
    scaled_mins = sum(step.floor for step in children)
    groups = (tree.accounts[name] for name in RESERVED if name in tree.accounts) if parent == ROOT else ()
    return LevelShares(
        parent=parent,
        resource=resource,
        total=tree.total.get(resource, 0) if parent == ROOT else capacity,
        reserved={group.name: size for group in groups if (size := group.used.get(resource, 0))},
        capacity=capacity,
        minima=sum(step.min for step in children),
        left=left,
        rounds=rounds,
        children=children,
        surplus=capacity - scaled_mins,
        lent=sum(max(0, step.floor - step.runtime) for step in children),
        borrowed=sum(max(0, step.runtime - step.floor) for step in children),
        idle=capacity - sum(step.runtime for step in children),
    )


def tree_of(books: LedgerProjection, quota: str) -> tuple[str, QuotaTree]:
    """The tree that a quota is in, with its name.

    Raises:
        UnknownQuota: there is none of that name.
    """
    name = books.tree_of.get(quota)
    if name is None:
        raise UnknownQuota(quota)
    return name, books.trees[name]


def _shared(left: int, hungry: list[Child]) -> tuple[list[ShareRound], dict[str, list[int]]]:
    """The rounds in which what is left is shared, and what each round adds to each child."""
    rounds: list[ShareRound] = []
    added: dict[str, list[int]] = {}
    got = {child.name: child.floor for child in hungry}
    weights = sum(child.weight for child in hungry)
    while left > 0 and weights > 0:
        rounds.append(ShareRound(left, weights))
        portions = apportion(left, weights, [(child.weight, child.name) for child in hungry])
        left, still = 0, []
        for child, portion in zip(hungry, portions, strict=True):
            kept = min(portion, child.ask - got[child.name])
            left += portion - kept
            got[child.name] += kept
            added.setdefault(child.name, []).append(kept)
            if got[child.name] < child.ask:
                still.append(child)
        hungry, weights = still, sum(child.weight for child in still)
    return rounds, added
