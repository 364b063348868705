"""The opening balances of the ledger: entries that, posted to empty accounts, give the projection as it is.

The log begins with them once its oldest events have been dropped. Exact at the cut, so that everything later can be
verified against it, runtimes included.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.events import Event
from shared.events.quota import (
    BalancesOpened,
    CapacitySet,
    OveruseStarted,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    QuotaDeclared,
    QuotaRejected,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import ROOT

PART = 2_000
"""Entries of one event."""

Entry = (
    CapacitySet
    | QuotaDeclared
    | PodAttached
    | PodCharged
    | PodChargeReverted
    | RuntimeRecomputed
    | OveruseStarted
    | QuotaRejected
)


class LedgerBalances:
    """The fold of the ledger's own log up to a cut."""

    def __init__(self, projection: LedgerProjection) -> None:
        self._projection = projection

    def apply(self, event: Event) -> None:
        """Folds one event."""
        self._projection.fold(event)

    def opening(self, most: int) -> Sequence[BalancesOpened]:
        """Returns at most so many events that hold all entries."""
        entries = list(entries_of(self._projection))
        size = max(PART, -(-len(entries) // most))
        return [
            BalancesOpened(part=part, entries=tuple(entries[start : start + size]))
            for part, start in enumerate(range(0, max(len(entries), 1), size))
        ]


def entries_of(projection: LedgerProjection) -> Iterator[Entry]:
    """Yields the entries: capacities, quotas, pods, and last the runtimes, which name quotas."""
    for name, tree in sorted(projection.trees.items()):
        yield CapacitySet(tree=name, total=tree.total, source="annotation" if name else "nodes")
        for info in sorted(tree.quotas.values(), key=lambda info: (info.depth, info.name)):
            if info.name != ROOT:
                yield QuotaDeclared(quota=info.name, declared=info.declared, tree=name)
    yield from _pods(projection)
    for name, tree in sorted(projection.trees.items()):
        yield _runtimes(name, tree)
    for quota, clock in sorted(projection.overuse.items()):
        yield OveruseStarted(quota=quota, resources=(), at_ns=clock.since_ns, tree=clock.tree)
    for quota, reason in sorted(projection.rejected.items()):
        yield QuotaRejected(quota=quota, reason=reason)
    for quota, duplicates in sorted(projection.duplicates.items()):
        for key, reason in sorted(duplicates.items()):
            yield QuotaRejected(quota=quota, reason=reason, object=key)


def _pods(projection: LedgerProjection) -> Iterator[Entry]:
    for uid, pod in sorted(projection.pods.items()):
        name = projection.pods.name(uid)
        yield PodAttached(
            pod_uid=uid,
            pod=name,
            quota=pod.quota,
            request=pod.request,
            tree=pod.tree,
            preemptible=pod.preemptible,
            matched_by=pod.matched_by,
        )
        same: dict[str, Any] = {"pod_uid": uid, "pod": name, "quota": pod.quota, "request": pod.request}
        if pod.charged or pod.epoch or pod.cycle:
            yield PodCharged(**same, epoch=pod.epoch, cycle=pod.cycle)
            if not pod.charged:  # the cycle of a reverted charge stays in the pod's entry
                yield PodChargeReverted(**same, reason="unreserve")


def _runtimes(name: str, tree: QuotaTree) -> RuntimeRecomputed:
    runtimes: dict[str, dict[str, int]] = {}
    scaled_mins: dict[str, dict[str, int]] = {}
    for quota, info in sorted(tree.quotas.items()):
        if quota != ROOT:
            for sizes, found in ((info.runtime, runtimes), (info.scaled_min, scaled_mins)):
                for resource, size in sizes.items():
                    found.setdefault(resource, {})[quota] = size
    return RuntimeRecomputed(tree=name, runtimes=runtimes, scaled_mins=scaled_mins)
