"""The books as a snapshot holds them: what was declared and held, and what was granted; sums and balances follow from these."""

import msgspec

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    SUPPLY,
    Posting,
    hold_account,
    pending_account,
    pod_account,
    transfer,
    used_account,
)
from services.quota_ledger.accounting.projection import AttachedPod, LedgerProjection, OveruseClock
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, negated, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class TreeSnapshot(msgspec.Struct, frozen=True):
    """One tree.

    Attributes:
        quotas: quota -> (declared, floor in force, runtime).
    """

    total: Amounts
    capacity: Amounts
    quotas: dict[str, tuple[DeclaredQuota, Amounts, Amounts]]


class ProjectionSnapshot(msgspec.Struct, frozen=True):
    """All of it."""

    trees: dict[str, TreeSnapshot]
    pods: dict[str, AttachedPod]
    over: dict[str, OveruseClock]
    rejected: dict[str, str]


def image_of(projection: LedgerProjection) -> ProjectionSnapshot:
    """For a snapshot."""
    return ProjectionSnapshot(
        trees={name: _tree_image(tree) for name, tree in projection.trees.items()},
        pods=projection.pods,
        over=projection.over,
        rejected=projection.rejected,
    )


def restored(projection: LedgerProjection, image: ProjectionSnapshot) -> None:
    """Put a snapshot into new books."""
    for name, stored in image.trees.items():
        tree = projection.tree(name)
        tree.total, tree.capacity = stored.total, stored.capacity
        for quota, (declared, _, _) in stored.quotas.items():
            projection.names.put(declared)
            projection.tree_of[quota] = name
            tree.add_quota(declared)
    for uid, pod in image.pods.items():
        projection.pods[uid] = pod
        projection.pods_of.setdefault(pod.quota, {})[uid] = None
        np_request = {} if pod.preemptible else pod.request
        tree = projection.tree(pod.tree)
        tree.add_request(pod.quota, pod.request, np_request)
        if pod.charged:
            tree.add_used(pod.quota, pod.request, np_request)
        where = used_account(pod.quota, preemptible=pod.preemptible) if pod.charged else pending_account(pod.quota)
        projection.balances.post(transfer(pod.tree, CONSUMPTION, pod_account(uid), where, pod.request))
    for name, stored in image.trees.items():
        tree = projection.trees[name]
        tree.put({quota: (floor, runtime) for quota, (_, floor, runtime) in stored.quotas.items()})
        tree.changed_levels.update(tree.quotas)  # what had moved since the last RuntimeRecomputed is found out anew
        projection.balances.post(_supply(name, tree))
    projection.over.update(image.over)
    projection.rejected.update(image.rejected)


def _tree_image(tree: QuotaTree) -> TreeSnapshot:
    quotas = sorted((info for info in tree.quotas.values() if info.name != ROOT), key=lambda a: (a.depth, a.name))
    return TreeSnapshot(
        total=tree.total,
        capacity=tree.capacity,
        quotas={a.name: (a.declared, dict(a.scaled_min), a.runtime) for a in quotas},
    )


def _supply(name: str, tree: QuotaTree) -> list[Posting]:
    batch: list[Posting] = [((name, SUPPLY, "supply"), negated(tree.capacity))]
    for info in tree.quotas.values():
        own = tree.capacity if info.name == ROOT else info.runtime
        below = total(tree.quotas[child].runtime for child in info.children)
        if info.name not in RESERVED:
            batch.append(((name, SUPPLY, hold_account(info.name)), sub(own, below)))
    return batch
