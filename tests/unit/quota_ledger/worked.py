"""Trees written as in the specification's worked examples."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.quota_ledger.tree import Tree
from shared.kube.elastic_quota import ROOT, DeclaredQuota


class Q(NamedTuple):
    """A quota in one resource.

    Attributes:
        pods: what its own pods ask for; `used` of it is used.
        max: not said: so high that it does not matter.
        weight: not said: `max`.
    """

    name: str
    min: int = 0
    max: int = 10_000
    pods: int = 0
    weight: int | None = None
    lends: bool = True
    parent: str = ROOT
    used: int = 0


def declared(quota: Q, resource: str = "cpu") -> DeclaredQuota:
    return DeclaredQuota(
        name=quota.name,
        parent=quota.parent,
        is_parent=True,
        lends=quota.lends,
        min={resource: quota.min},
        max={resource: quota.max},
        weight={resource: quota.max if quota.weight is None else quota.weight},
    )


def tree_of(
    total: Mapping[str, int],
    quotas: Iterable[Q | DeclaredQuota],
    *,
    pods: Mapping[str, Mapping[str, int]] | None = None,
    scales_min: bool = True,
    guarantees: bool = False,
) -> Tree:
    """A settled tree; `pods`: what the own pods of each quota ask for."""
    tree = Tree(scales_min=scales_min, guarantees=guarantees)
    tree.set_total(dict(total))
    for quota in quotas:
        tree.declare(declared(quota) if isinstance(quota, Q) else quota)
        if isinstance(quota, Q):
            tree.add_request(quota.name, {"cpu": quota.pods}, {})
            tree.add_used(quota.name, {"cpu": quota.used}, {})
    for name, request in (pods or {}).items():
        tree.add_request(name, dict(request), {})
    tree.settle()
    return tree


def runtimes(tree: Tree, resource: str = "cpu") -> dict[str, int]:
    return {
        name: account.runtime[resource]
        for name, account in tree.accounts.items()
        if name != ROOT and resource in account.runtime
    }
