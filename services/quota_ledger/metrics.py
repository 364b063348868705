"""What the ledger shows Prometheus, under upstream's names. Source: spec/quota.md 8; upstream elasticquota/metrics.go.

Quotas are measured where something moved, so many at a time: with thousands of them the page is large, and no look may hold the loop.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Gauge, Histogram

from services.quota_ledger.account import Account
from services.quota_ledger.profile_view import tree_of
from services.quota_ledger.state import LedgerState
from services.quota_ledger.status import numbers
from services.quota_ledger.tree import Tree

MOST = 500
"""Quotas that one look measures."""

LABELS = ("name", "resource", "tree", "is_parent", "parent", "field")
Key = tuple[str, ...]


class QuotaMetrics:
    """Series in a service's registry; cpu in milli-cores, everything else in whole units."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status = Gauge("scheduler_elastic_quota_status", "Each number of each quota", LABELS, registry=registry)
        self._told_s = Histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Finding out what the objects of quotas are to be told",
            buckets=[0.001 * 2**power for power in range(15)],
            registry=registry,
        )
        self._took_s = Histogram(
            "scheduler_elastic_quota_process_latency",
            "Seconds, by operation",
            ("operation",),
            buckets=[0.00001 * 2**power for power in range(24)],
            registry=registry,
        )
        self._shown: dict[str, dict[Key, None]] = {}

    @contextmanager
    def took(self, operation: str) -> Iterator[None]:
        """Measure one operation: `RefreshRuntime`, `ReservePod`, `UpdateQuota`."""
        started = perf_counter()
        yield
        self._took_s.labels(operation).observe(perf_counter() - started)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Measure one look at what objects are to be told."""
        started = perf_counter()
        yield
        self._told_s.observe(perf_counter() - started)

    def look(self, state: LedgerState, most: int = MOST) -> None:
        """Show the quotas whose numbers moved since the last look, at most so many; forget those that are gone."""
        unshown = state.published.unshown
        for name in list(unshown)[:most]:
            del unshown[name]
            tree = state.books.tree_of.get(name)
            account = state.books.trees[tree].accounts.get(name) if tree is not None else None
            now = series(state, tree or "", account) if account else {}
            before = self._shown.pop(name, {})
            for key in before.keys() - now.keys():
                self._status.remove(*key)
            for key, size in now.items():
                self._status.labels(*key).set(size)
            if now:
                self._shown[name] = dict.fromkeys(now)


def series(state: LedgerState, name: str, account: Account) -> dict[Key, int]:
    """Values of `LABELS` -> amount, of one quota of a tree."""
    tree, declared = state.books.trees[name], account.declared
    labels = (name, str(declared.is_parent).lower(), declared.parent)
    found: dict[Key, int] = {}
    for field, amounts in _fields(state, tree, account):
        for resource, size in amounts.items():
            found[(account.name, resource, *labels, field)] = size
    return found


def _fields(state: LedgerState, tree: Tree, account: Account) -> Iterator[tuple[str, Mapping[str, int]]]:
    yield from numbers(tree, account)
    yield "used", account.used
    yield "min", account.declared.min
    yield "max", account.declared.max
    yield "sharedWeight", account.declared.weight
    if account.declared.is_root:
        for key, profile in state.profiles.profiles.items():
            if tree_of(profile) == account.declared.tree:
                yield "unschedulable-resource", state.profiles.sums[key].unusable
