"""The books as a snapshot holds them: what was declared and held, and what was granted; sums and balances follow from these."""

import msgspec

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    SUPPLY,
    Posting,
    contra,
    held,
    moved,
    pending,
    used,
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


def image_of(books: LedgerProjection) -> ProjectionSnapshot:
    """For a snapshot."""
    return ProjectionSnapshot(
        trees={name: _tree_image(tree) for name, tree in books.trees.items()},
        pods=books.pods,
        over=books.over,
        rejected=books.rejected,
    )


def restored(books: LedgerProjection, image: ProjectionSnapshot) -> None:
    """Put a snapshot into new books."""
    for name, stored in image.trees.items():
        tree = books.tree(name)
        tree.total, tree.capacity = stored.total, stored.capacity
        for quota, (declared, _, _) in stored.quotas.items():
            books.names.put(declared)
            books.tree_of[quota] = name
            tree.declare(declared)
    for uid, pod in image.pods.items():
        books.pods[uid] = pod
        books.pods_of.setdefault(pod.quota, {})[uid] = None
        np_request = {} if pod.preemptible else pod.request
        tree = books.tree(pod.tree)
        tree.add_request(pod.quota, pod.request, np_request)
        if pod.charged:
            tree.add_used(pod.quota, pod.request, np_request)
        where = used(pod.quota, preemptible=pod.preemptible) if pod.charged else pending(pod.quota)
        books.ledger.post(moved(pod.tree, CONSUMPTION, contra(uid), where, pod.request))
    for name, stored in image.trees.items():
        tree = books.trees[name]
        tree.put({quota: (floor, runtime) for quota, (_, floor, runtime) in stored.quotas.items()})
        tree.levels.update(tree.accounts)  # what had moved since the last RuntimeRecomputed is found out anew
        books.ledger.post(_supply(name, tree))
    books.over.update(image.over)
    books.rejected.update(image.rejected)


def _tree_image(tree: QuotaTree) -> TreeSnapshot:
    accounts = sorted(
        (account for account in tree.accounts.values() if account.name != ROOT), key=lambda a: (a.depth, a.name)
    )
    return TreeSnapshot(
        total=tree.total,
        capacity=tree.capacity,
        quotas={a.name: (a.declared, dict(a.scaled_min), a.runtime) for a in accounts},
    )


def _supply(name: str, tree: QuotaTree) -> list[Posting]:
    batch: list[Posting] = [((name, SUPPLY, "supply"), negated(tree.capacity))]
    for account in tree.accounts.values():
        own = tree.capacity if account.name == ROOT else account.runtime
        below = total(tree.accounts[child].runtime for child in account.children)
        if account.name not in RESERVED:
            batch.append(((name, SUPPLY, held(account.name)), sub(own, below)))
    return batch
