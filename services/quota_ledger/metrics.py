"""The ledger's Prometheus metrics, under upstream's names. Source: spec/quota.md 8; upstream elasticquota/metrics.go.

Thousands of quotas have hundreds of thousands of series, too many to be kept as objects and formatted at each scrape.
So the series of each quota are kept as text, and formatted again when its numbers change, MAX_QUOTAS at a time:
neither an update nor a scrape blocks the event loop for long.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import TypeVar

from prometheus_client import CollectorRegistry, Histogram

from services.quota_ledger.decide.quota_status import numbers
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.profile_resources import tree_of
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree

T = TypeVar("T")

MAX_QUOTAS = 25
"""Quotas formatted in one update, at most."""

STATUS = "scheduler_elastic_quota_status"
HEAD = f"# HELP {STATUS} Each number of each quota\n# TYPE {STATUS} gauge\n".encode()


class QuotaMetrics:
    """Series of the registry, and those of quotas as text; cpu in milli-cores, everything else in whole units."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status_s = Histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Computing the status of quota objects",
            buckets=[0.001 * 2**power for power in range(15)],
            registry=registry,
        )
        self._operation_s = Histogram(
            "scheduler_elastic_quota_process_latency",
            "Seconds, by operation",
            ("operation",),
            buckets=[0.00001 * 2**power for power in range(24)],
            registry=registry,
        )
        self._texts: dict[str, bytes] = {}

    def timed(self, operation: str, decide: Callable[[], T]) -> T:
        """Returns what an operation decides; measures it where that is anything.

        Args:
            operation: `UpdateQuota` for the structure of trees, `OnPodUpdate` for pods and capacities, or
                `RefreshRuntime`, or `ReservePod` for charges.
        """
        started = perf_counter()
        if found := decide():
            self._operation_s.labels(operation).observe(perf_counter() - started)
        return found

    @contextmanager
    def status_timed(self) -> Iterator[None]:
        """Measures one computation of the status of quota objects."""
        started = perf_counter()
        yield
        self._status_s.observe(perf_counter() - started)

    def update(self, state: LedgerState, max_quotas: int = MAX_QUOTAS) -> None:
        """Formats the quotas whose numbers changed since the last call, and drops deleted ones."""
        changed = state.published.metrics_changed
        for name in list(islice(changed, max_quotas)):
            del changed[name]
            tree = state.projection.tree_of.get(name)
            info = state.projection.trees[tree].quotas.get(name) if tree is not None else None
            if info is None:
                self._texts.pop(name, None)
            else:
                self._texts[name] = series(state, tree or "", info).encode()

    def page(self) -> bytes:
        """Returns each number of each quota in Prometheus' text format."""
        return b"".join((HEAD, *self._texts.values())) if self._texts else b""


def series(state: LedgerState, name: str, info: QuotaInfo) -> str:
    """Returns one quota of a tree: a line for each number."""
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
