"""The metrics of the descheduler. Source: spec/descheduler.md 5, of which `descheduler_pods_evicted` counts evictions."""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.descheduler.framework.cycle import CyclePlan
from services.descheduler.migration.drain import TRIGGER as DRAIN_TRIGGER
from services.descheduler.migration.migration_state import OWN, outcome_of
from services.descheduler.migration.pod_migration_job import EVICT_TRIGGER
from services.descheduler.plugins.registry import REGISTRY
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.events import Event, RecordedEvent
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened

BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


EVICTED = "descheduler_pods_evicted"
"""Upstream's name, without the suffix `_total`."""

TRIGGERS, OTHER = frozenset((*REGISTRY, DRAIN_TRIGGER)), "other"
"""Triggers that are series of their own: anyone who creates jobs may write another one, and as many as he likes."""


class PodsEvicted(Collector):
    """The evictions that were carried out, or refused, by result, trigger, namespace and node, when they were."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: Counts[tuple[str, str, str, str]] = Counts()
        registry.register(self)

    def count(self, record: RecordedEvent, state: DeschedulerState) -> None:
        """Counts an event of `cluster` that is the outcome of an eviction of a job.

        Args:
            state: before the event is folded: of a pod that is gone afterwards the node is known.
        """
        cause = record.cause
        if record.context != "cluster" or cause is None or cause.context != OWN:
            return
        request, outcome = state.migration.requests.get(cause.seq), outcome_of(record)
        if request is None or outcome is None:
            return
        jobs = state.migration.facts.jobs.values()
        trigger = next((job.annotations.get(EVICT_TRIGGER, "") for job in jobs if job.uid == request.job_uid), "")
        if trigger not in TRIGGERS:
            trigger = OTHER if trigger else ""
        pod = state.cluster.pods.by_uid.get(request.pod_uid)
        result, node = "success" if outcome.done else "error", pod.spec.node_name if pod is not None else ""
        self._counts[result, trigger, request.namespace, node] += 1

    def collect(self) -> Iterator[Metric]:
        """Yields the series."""
        family = Metric(EVICTED, "Evictions by result, strategy, namespace and node", "untyped")
        for labels, count in self._counts.items():
            named = dict(zip(("result", "strategy", "namespace", "node"), labels, strict=True))
            family.add_sample(EVICTED, named, float(count))
        yield family


class DeschedulerMetrics:
    """Cycles, cases and what became of their victims.

    Attributes:
        evicted: see `PodsEvicted`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evicted = PodsEvicted(registry)
        self._cycles = Histogram(
            "koord_descheduler_plan_seconds", "Time to choose the pods of a cycle", registry=registry, buckets=BUCKETS_S
        )
        self._cases = Counter("koord_descheduler_cases", "Cases, by plugin", ["plugin"], registry=registry)
        self._victims = Counter(
            "koord_descheduler_victims", "Pods that are to move, by plugin", ["plugin"], registry=registry
        )
        self._passed_over = Counter(
            "koord_descheduler_passed_over", "Pods that were passed over, by plugin", ["plugin"], registry=registry
        )
        self._closed = Counter(
            "koord_descheduler_closed_cases", "Cases that ended, by outcome", ["outcome"], registry=registry
        )

    def planned(self, _: CyclePlan, seconds: float) -> None:
        """Counts a cycle."""
        self._cycles.observe(seconds)

    def opened(self, events: Iterable[Event]) -> None:
        """Counts the cases among events."""
        for event in events:
            if isinstance(event, EvictionCaseOpened):
                self._cases.labels(event.plugin).inc()
                self._victims.labels(event.plugin).inc(len(event.victims))
                self._passed_over.labels(event.plugin).inc(event.passed_over_count)

    def closed(self, events: Iterable[Event]) -> None:
        """Counts the ends of cases among events."""
        for event in events:
            if isinstance(event, EvictionCaseClosed):
                self._closed.labels(event.outcome).inc()
