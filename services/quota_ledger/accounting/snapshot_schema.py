"""The projection in a snapshot: declarations, pods and runtimes. Sums and balances follow from these."""

from collections.abc import Mapping

import msgspec

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    PODS,
    SUPPLY,
    Posting,
    hold_account,
    pending_account,
    transfer,
    used_account,
)
from services.quota_ledger.accounting.ledger_projection import LedgerProjection, OveruseClock
from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, negated, raise_clamped, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class TreeSnapshot(msgspec.Struct, frozen=True):
    """One tree.

    Attributes:
        quotas: quota -> (declaration, scaled min, runtime), parents before children.
    """

    total: Amounts
    capacity: Amounts
    quotas: dict[str, tuple[DeclaredQuota, Amounts, Amounts]]


class ProjectionSnapshot(msgspec.Struct, frozen=True):
    """A projection.

    Attributes:
        pods: uid -> (namespace/name, entry).
    """

    trees: dict[str, TreeSnapshot]
    pods: dict[str, tuple[str, AttachedPod]]
    overuse: dict[str, OveruseClock]
    rejected: dict[str, str]
    duplicates: dict[str, dict[str, str]]


def snapshot_of(projection: LedgerProjection) -> ProjectionSnapshot:
    """Returns a projection for a snapshot."""
    pods = projection.pods
    return ProjectionSnapshot(
        trees={name: _tree_snapshot(tree) for name, tree in projection.trees.items()},
        pods={uid: (pods.name(uid), pod) for uid, pod in pods.items()},
        overuse=projection.overuse,
        rejected=projection.rejected,
        duplicates=projection.duplicates,
    )


def restore_into(projection: LedgerProjection, snapshot: ProjectionSnapshot) -> None:
    """Fills an empty projection."""
    for name, stored in snapshot.trees.items():
        tree = projection.tree(name)
        tree.total, tree.capacity = stored.total, stored.capacity
        for quota, (declared, _, _) in stored.quotas.items():
            projection.lookup.put(declared)
            projection.tree_of[quota] = name
            tree.add_quota(declared)
    _restore_pods(projection, snapshot.pods)
    for name, stored in snapshot.trees.items():
        tree = projection.trees[name]
        tree.restore_runtimes({quota: (scaled, runtime) for quota, (_, scaled, runtime) in stored.quotas.items()})
        # The snapshot does not hold which levels had changed since the last RuntimeRecomputed: compute all of them once.
        tree.changed_levels.update(tree.quotas)
        projection.balances.post(_supply(name, tree))
    projection.overuse.update(snapshot.overuse)
    projection.rejected.update(snapshot.rejected)
    projection.duplicates.update(snapshot.duplicates)


def _restore_pods(projection: LedgerProjection, pods: Mapping[str, tuple[str, AttachedPod]]) -> None:
    """Attaches all pods, then raises the sums of each quota once: a pod's own way to the root takes ten times as long."""
    requests: dict[tuple[str, str], tuple[Amounts, Amounts]] = {}
    used: dict[tuple[str, str], tuple[Amounts, Amounts]] = {}
    accounts: dict[tuple[str, str], Amounts] = {}
    for uid, (name, pod) in pods.items():
        projection.table.attach(uid, name, pod)
        place = (pod.tree, pod.quota)
        for sums in (requests, used) if pod.charged else (requests,):
            every, non_preemptible = sums.setdefault(place, ({}, {}))
            raise_clamped(every, pod.request)
            if not pod.preemptible:
                raise_clamped(non_preemptible, pod.request)
        account = used_account(pod.quota, preemptible=pod.preemptible) if pod.charged else pending_account(pod.quota)
        raise_clamped(accounts.setdefault((pod.tree, account), {}), pod.request)
    for (tree, quota), (every, non_preemptible) in requests.items():
        projection.tree(tree).add_request(quota, every, non_preemptible)
    for (tree, quota), (every, non_preemptible) in used.items():
        projection.tree(tree).add_used(quota, every, non_preemptible)
    for (tree, account), total_of in accounts.items():
        projection.balances.post(transfer(tree, CONSUMPTION, PODS, account, total_of))


def _tree_snapshot(tree: QuotaTree) -> TreeSnapshot:
    quotas = (info for info in tree.quotas.values() if info.name != ROOT)
    return TreeSnapshot(
        total=tree.total,
        capacity=tree.capacity,
        quotas={
            info.name: (info.declared, dict(info.scaled_min), info.runtime)
            for info in sorted(quotas, key=lambda info: (info.depth, info.name))
        },
    )


def _supply(name: str, tree: QuotaTree) -> list[Posting]:
    batch: list[Posting] = [((name, SUPPLY, "supply"), negated(tree.capacity))]
    for info in tree.quotas.values():
        own = tree.capacity if info.name == ROOT else info.runtime
        below = total(tree.quotas[child].runtime for child in info.children)
        if info.name not in RESERVED:
            batch.append(((name, SUPPLY, hold_account(info.name)), sub(own, below)))
    return batch
