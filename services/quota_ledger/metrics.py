"""What the ledger shows Prometheus, under upstream's names. Source: spec/quota.md 8; upstream elasticquota/metrics.go.

With thousands of quotas there are hundreds of thousands of series, too many to be kept as objects and written out at each scrape. So each
quota's are kept as text, and made anew where something moved, so many quotas at a time: neither a look nor a scrape holds the loop.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Histogram

from services.quota_ledger.decide.quota_status import numbers
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.profile_resources import tree_of
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree

MOST = 500
"""Quotas that one look measures."""

STATUS = "scheduler_elastic_quota_status"
HEAD = f"# HELP {STATUS} Each number of each quota\n# TYPE {STATUS} gauge\n".encode()


class QuotaMetrics:
    """Series in a service's registry, and a page of them; cpu in milli-cores, everything else in whole units."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        self._shown: dict[str, bytes] = {}

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
            tree = state.projection.tree_of.get(name)
            info = state.projection.trees[tree].quotas.get(name) if tree is not None else None
            if info is None:
                self._shown.pop(name, None)
            else:
                self._shown[name] = series(state, tree or "", info).encode()

    def page(self) -> bytes:
        """Each number of each quota, as Prometheus' text."""
        return b"".join((HEAD, *self._shown.values())) if self._shown else b""


def series(state: LedgerState, name: str, info: QuotaInfo) -> str:
    """One quota of a tree: a line for each number."""
    tree, declared = state.projection.trees[name], info.declared
    texts = (info.name, name, str(declared.is_parent).lower(), declared.parent)
    labels = ",".join(
        f'{label}="{_escaped(text)}"'
        for label, text in zip(("name", "tree", "is_parent", "parent"), texts, strict=True)
    )
    return "".join(
        f'{STATUS}{{{labels},resource="{_escaped(resource)}",field="{field}"}} {size}\n'
        for field, amounts in _fields(state, tree, info)
        for resource, size in amounts.items()
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _fields(state: LedgerState, tree: QuotaTree, info: QuotaInfo) -> Iterator[tuple[str, Mapping[str, int]]]:
    yield from numbers(tree, info)
    yield "used", info.used
    yield "min", info.declared.min
    yield "max", info.declared.max
    yield "sharedWeight", info.declared.weight
    if info.declared.is_root:
        for key, profile in state.profiles.profiles.items():
            if tree_of(profile) == info.declared.tree:
                yield "unschedulable-resource", state.profiles.sums[key].unusable
