"""The table of all quotas: runtime, use, borrowed, lent and waiting amounts."""

from collections.abc import Iterator

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, add, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT


class OverviewRow(msgspec.Struct, frozen=True):
    """One quota in one resource.

    Attributes:
        depth: 1 below the root; 0 for the root itself, whose `min` is the sum over its children.
        runtime: for the system and default groups their max, which alone limits them. None in a resource that max lacks
            and that therefore does not limit the quota.
        borrowed: runtime above the effective min; `lent`: runtime below it.
        used: of its pods and of those below it; `waiting`: requests of pods that are not charged yet.
    """

    tree: str
    quota: str
    parent: str
    depth: int
    resource: str
    min: int
    max: int | None
    runtime: int | None
    used: int
    borrowed: int
    lent: int
    waiting: int


def overview(projection: LedgerProjection) -> list[OverviewRow]:
    """Returns every quota in every resource, parents first; a tree begins with its sums, at depth 0."""
    found: list[OverviewRow] = []
    for name, tree in sorted(projection.trees.items()):
        waiting: dict[str, Amounts] = {}
        _sum_up(tree, ROOT, waiting)
        found += _whole(name, tree, waiting)
        for info in _in_order(tree, ROOT):
            of_one = _reserved if info.name in RESERVED else _ordinary
            found += of_one(name, info, waiting[info.name])
    return found


def _sum_up(tree: QuotaTree, quota: str, waiting: dict[str, Amounts]) -> Amounts:
    """Fills in the waiting requests of each quota of a subtree; neither max nor min limits them."""
    info = tree.quotas[quota]
    below = (_sum_up(tree, child, waiting) for child in info.children)
    waiting[quota] = add(sub(info.self_request, info.self_used), total(below))
    return waiting[quota]


def _whole(name: str, tree: QuotaTree, waiting: dict[str, Amounts]) -> Iterator[OverviewRow]:
    """Yields the sums of a tree, without the reserved groups."""
    below = [tree.quotas[child] for child in tree.quotas[ROOT].children if child not in RESERVED]
    minima, used = total(each.declared.min for each in below), total(each.used for each in below)
    waits = total(waiting[each.name] for each in below)
    for resource in tree.level_resources(ROOT):
        yield OverviewRow(
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
            waiting=waits.get(resource, 0),
        )


def _ordinary(name: str, info: QuotaInfo, waiting: Amounts) -> Iterator[OverviewRow]:
    declared = info.declared
    for resource in sorted({*declared.max, *info.runtime}):
        runtime = info.runtime.get(resource, 0) if resource in declared.max else None
        effective_min = max(info.scaled_min.get(resource, 0), info.guaranteed.get(resource, 0))
        yield OverviewRow(
            tree=name,
            quota=info.name,
            parent=declared.parent,
            depth=info.depth,
            resource=resource,
            min=declared.min.get(resource, 0),
            max=declared.max.get(resource),
            runtime=runtime,
            used=info.used.get(resource, 0),
            borrowed=0 if runtime is None else max(0, runtime - effective_min),
            lent=0 if runtime is None else max(0, effective_min - runtime),
            waiting=waiting.get(resource, 0),
        )


def _reserved(name: str, info: QuotaInfo, waiting: Amounts) -> Iterator[OverviewRow]:
    """Yields the system or default group in the resources that its pods use or wait for."""
    for resource in sorted(info.used.keys() | waiting.keys()):
        limit = info.declared.max.get(resource)
        yield OverviewRow(
            tree=name,
            quota=info.name,
            parent=info.declared.parent,
            depth=info.depth,
            resource=resource,
            min=0,
            max=limit,
            runtime=limit if limit is not None else 0,
            used=info.used.get(resource, 0),
            borrowed=0,
            lent=0,
            waiting=waiting.get(resource, 0),
        )


def _in_order(tree: QuotaTree, parent: str) -> Iterator[QuotaInfo]:
    for name in sorted(tree.quotas[parent].children):
        yield tree.quotas[name]
        yield from _in_order(tree, name)
