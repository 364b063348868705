"""The arithmetic of a runtime, written out; what each quota borrows and lends; why a pod has no room; what a change would change.

Every number is computed by the code that decides, so that what is explained is what happens.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.quota_ledger.admission import AdmissionRules, shortfall
from services.quota_ledger.books import Books, Held
from services.quota_ledger.image import BooksImage, image_of, restored
from services.quota_ledger.sharing import Child, apportion
from services.quota_ledger.tree import Tree
from shared.domain.amounts import sub, total
from shared.errors import KoordError
from shared.kube.elastic_quota import RESERVED, ROOT

MOST_PODS = 20


class UnknownQuota(KoordError):
    """There is no quota of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no quota {name!r}; `koord quota tree` shows those there are")


class Line(msgspec.Struct, frozen=True):
    """One quota in one resource.

    Attributes:
        depth: 1 below the root; 0 for the root itself, whose `min` is what the quotas below it are promised together.
        borrowed: what its runtime is above its min in force; `lent` what it is below.
        used: of its pods and of those below; `waiting` what pods ask for and do not use yet.
    """

    tree: str
    quota: str
    parent: str
    depth: int
    resource: str
    min: int
    max: int | None
    runtime: int
    used: int
    borrowed: int
    lent: int
    waiting: int


class Step(msgspec.Struct, frozen=True):
    """How one child came to its share.

    Attributes:
        floor: its min in force; below `min` where the minima do not all fit.
        certain: what it gets before anything is shared.
        rounds: what each round of sharing added to it.
    """

    quota: str
    min: int
    floor: int
    asked: int
    weight: int
    lends: bool
    certain: int
    rounds: list[int]
    runtime: int


class Level(msgspec.Struct, frozen=True):
    """One set of siblings in one resource.

    Attributes:
        capacity: what they share; `minima` what all their minima come to.
        left: what is shared by weight, after what is certain.
        surplus, lent, borrowed, idle: surplus + lent = borrowed + idle.
    """

    parent: str
    resource: str
    capacity: int
    minima: int
    left: int
    children: list[Step]
    surplus: int
    lent: int
    borrowed: int
    idle: int


class Explained(msgspec.Struct, frozen=True):
    """A quota's runtime: the levels from the root down to it, and who holds it."""

    quota: str
    tree: str
    runtime: dict[str, int]
    used: dict[str, int]
    levels: list[Level]
    pods: list[Held]
    more_pods: int


class WhyPod(msgspec.Struct, frozen=True):
    """Where a pod stands with its quota.

    Attributes:
        state: `used`, `fits`, `short` or `unmanaged`.
        text: the scheduler's own words where it is short.
        missing: resource -> by how much the account `short_of` is exceeded.
        held_by: pods that use the most of what is missing.
        frees: quotas that borrow it from others in the same tree.
    """

    pod: str
    quota: str
    how: str
    state: str
    text: str = ""
    short_of: str = ""
    missing: dict[str, int] = msgspec.field(default_factory=dict)
    held_by: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    frees: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


def lines(books: Books) -> list[Line]:
    """Every quota in every resource, parents before children; each tree begins with what it shares as a whole, at depth 0."""
    return [
        line
        for name, tree in sorted(books.trees.items())
        for found in (_whole(name, tree), *(_lines(name, tree, quota) for quota in _in_order(tree, ROOT)))
        for line in found
    ]


def explain(books: Books, quota: str) -> Explained:
    """How a quota came to its runtime.

    Raises:
        UnknownQuota: there is none of that name.
    """
    name, tree = _tree_of(books, quota)
    path = [account.name for account in reversed(tree.path(quota))]
    levels = [level(tree, parent, resource) for parent in path[:-1] for resource in tree.dimensions(parent)]
    uids = sorted(books.pods_of.get(quota, ()))
    account = tree.accounts[quota]
    pods = [books.pods[uid] for uid in uids[:MOST_PODS]]
    return Explained(quota, name, account.runtime, dict(account.used), levels, pods, max(0, len(uids) - MOST_PODS))


def level(tree: Tree, parent: str, resource: str) -> Level:
    """The sharing among a parent's children, step by step; ends in the runtimes that were granted."""
    accounts = sorted(tree.siblings(parent), key=lambda each: each.name)
    capacity = tree.level_capacity(parent).get(resource, 0)
    steps, hungry = [], []
    left = capacity
    for account in accounts:
        floor = max(account.scaled_min.get(resource, 0), account.guaranteed.get(resource, 0))
        asked = (account.asked or {}).get(resource, 0)
        certain = floor if asked > floor or not account.lends else asked
        child = Child(account.name, floor, asked, account.declared.weight.get(resource, 0), account.lends)
        if asked > floor:
            hungry.append(child)
        left -= certain
        steps.append((account.declared.min.get(resource, 0), child, certain))
    rounds = _rounds(left, hungry)
    children = [
        Step(
            child.name,
            own,
            child.floor,
            child.ask,
            child.weight,
            child.lends,
            certain,
            rounds.get(child.name, []),
            certain + sum(rounds.get(child.name, [])),
        )
        for own, child, certain in steps
    ]
    floors = sum(step.floor for step in children)
    return Level(
        parent=parent,
        resource=resource,
        capacity=capacity,
        minima=sum(step.min for step in children),
        left=left,
        children=children,
        surplus=capacity - floors,
        lent=sum(max(0, step.floor - step.runtime) for step in children),
        borrowed=sum(max(0, step.runtime - step.floor) for step in children),
        idle=capacity - sum(step.runtime for step in children),
    )


def why(books: Books, uid: str, rules: AdmissionRules) -> WhyPod:
    """Which account a pod is short of, who holds it, and who could give it back."""
    pod = books.pods[uid]
    tree = books.trees[pod.tree]
    if pod.charged:
        return WhyPod(pod.pod, pod.quota, pod.how, "used")
    short = shortfall(tree, pod.quota, pod.request, preemptible=pod.preemptible, rules=rules)
    if short is None:
        return WhyPod(pod.pod, pod.quota, pod.how, "fits")
    over = sub(total((short.used, short.request)), short.limit)
    missing = {name: over[name] for name in short.exceeded}
    below = {account for account in tree.accounts if short.quota in (each.name for each in tree.path(account))}
    holders = [each for each in books.pods.values() if each.charged and each.quota in below]
    holders.sort(key=lambda each: (-sum(each.request.get(name, 0) for name in missing), each.pod))
    frees: dict[str, dict[str, int]] = {}
    for line in lines(books):
        if line.tree == pod.tree and line.resource in missing and line.borrowed and line.quota not in below:
            frees.setdefault(line.quota, {})[line.resource] = line.borrowed
    return WhyPod(
        pod.pod,
        pod.quota,
        pod.how,
        "short",
        short.text(),
        short.quota,
        missing,
        {each.pod: {name: each.request.get(name, 0) for name in missing} for each in holders[:5]},
        frees,
    )


def whatif(books: Books, changes: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, Any]:
    """What other minima, maxima or weights would change.

    Args:
        changes: quota -> `min`, `max` or `weight` -> resource -> amount.

    Returns:
        quota -> resource -> [runtime now, runtime then], where they differ.

    Raises:
        UnknownQuota: a quota of that name is not there.
    """
    other = Books()
    encoded = msgspec.msgpack.encode(image_of(books))
    restored(other, msgspec.msgpack.decode(encoded, type=BooksImage))
    for quota, fields in changes.items():
        _, tree = _tree_of(other, quota)
        declared = tree.accounts[quota].declared
        amended = {field: {**getattr(declared, field), **amounts} for field, amounts in fields.items()}
        tree.amend(msgspec.structs.replace(declared, **amended))
    for tree in other.trees.values():
        tree.settle()
    changed: dict[str, Any] = {}
    for name, tree in books.trees.items():
        for account in tree.accounts.values():
            then = other.trees[name].accounts[account.name].runtime
            for resource in sorted(account.runtime.keys() | then.keys()):
                pair = [account.runtime.get(resource, 0), then.get(resource, 0)]
                if pair[0] != pair[1]:
                    changed.setdefault(account.name, {})[resource] = pair
    return changed


def _rounds(left: int, hungry: list[Child]) -> dict[str, list[int]]:
    added: dict[str, list[int]] = {}
    got = {child.name: child.floor for child in hungry}
    weights = sum(child.weight for child in hungry)
    while left > 0 and weights > 0 and hungry:
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
    return added


def _whole(name: str, tree: Tree) -> list[Line]:
    """What a tree shares, and what is promised, used and waited for of it; the reserved groups take theirs before."""
    root = tree.accounts[ROOT]
    below = [tree.accounts[child] for child in root.children if child not in RESERVED]
    minima, used = total(each.declared.min for each in below), total(each.used for each in below)
    asked = total(each.limited() for each in below)
    return [
        Line(
            tree=name,
            quota=ROOT,
            parent="",
            depth=0,
            resource=resource,
            min=minima.get(resource, 0),
            max=None,
            runtime=tree.capacity.get(resource, 0),
            used=used.get(resource, 0),
            borrowed=0,
            lent=0,
            waiting=max(0, asked.get(resource, 0) - used.get(resource, 0)),
        )
        for resource in tree.dimensions(ROOT)
    ]


def _lines(name: str, tree: Tree, quota: str) -> list[Line]:
    account = tree.accounts[quota]
    declared = account.declared
    waiting = sub(account.request, account.used)
    resources = sorted({*declared.max, *account.runtime} if quota not in RESERVED else account.used)
    found = []
    for resource in resources:
        runtime, floor = account.runtime.get(resource, 0), account.scaled_min.get(resource, 0)
        found.append(
            Line(
                tree=name,
                quota=quota,
                parent=declared.parent,
                depth=account.depth,
                resource=resource,
                min=declared.min.get(resource, 0),
                max=declared.max.get(resource),
                runtime=runtime,
                used=account.used.get(resource, 0),
                borrowed=max(0, runtime - floor) if quota not in RESERVED else 0,
                lent=max(0, floor - runtime) if quota not in RESERVED else 0,
                waiting=max(0, waiting.get(resource, 0)),
            )
        )
    return found


def _in_order(tree: Tree, parent: str) -> list[str]:
    names = []
    for name in sorted(tree.accounts[parent].children):
        names += [name, *_in_order(tree, name)]
    return names


def _tree_of(books: Books, quota: str) -> tuple[str, Tree]:
    name = books.tree_of.get(quota)
    if name is None:
        raise UnknownQuota(quota)
    return name, books.trees[name]
