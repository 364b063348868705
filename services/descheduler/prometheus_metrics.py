"""The metrics of the descheduler. Source: spec/descheduler.md 5, of which `descheduler_pods_evicted` counts evictions."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from services.descheduler.framework.cycle import CyclePlan
from shared.events import Event
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened

BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class DeschedulerMetrics:
    """Cycles, cases and what became of their victims."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
