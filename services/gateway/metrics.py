"""Prometheus metrics of the gateway."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.gateway.effects.eviction_budget import EvictionRecord
from services.gateway.effects.intent_types import Intent
from services.gateway.watch.incomplete_list_guard import ShortLists
from services.gateway.watch.unread_resources import Outages
from shared.events import Event


class GatewayMetrics:
    """Metrics in a service's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "koord_gateway_outcomes", "Intents that have ended", ("intent", "outcome"), registry=registry
        )
        self._refused = Counter(
            "koord_gateway_refused_intents",
            "Intents that their context may not carry; any but 0 is a fault or a forgery",
            ("context", "intent"),
            registry=registry,
        )
        self._lists = Counter(
            "koord_gateway_lists",
            "Complete lists: at the start, every compare interval, and when a watch was too old",
            ("resource",),
            registry=registry,
        )
        self._given_up = Gauge(
            "koord_gateway_desired_states_given_up",
            "Desired states that are not written, for want of an answer or of a permission, and are tried again",
            registry=registry,
        )
        self._short = Gauge(
            "koord_gateway_short_list_missing",
            "Objects that a list lacks which is not believed; effects stop while this is not 0",
            registry=registry,
        )
        self._outage = Gauge(
            "koord_gateway_outage_seconds",
            "Time for which a resource could not be listed or watched, of the longest such outage; 0 for none",
            registry=registry,
        )
        self._evictions_paused = Gauge(
            "koord_gateway_evictions_paused", "Evictions that wait for budget or for a release", registry=registry
        )
        self._evictions_held = Gauge(
            "koord_gateway_evictions_held",
            "1 while an operator or the breaker holds all evictions; see koord evictions status",
            registry=registry,
        )

    def watch_given_up(self, given_up: Callable[[], int]) -> None:
        """Adds the number of desired states that are given up, which is read with the metrics."""
        self._given_up.set_function(given_up)

    def watch_evictions(self, evictions: Callable[[], EvictionRecord]) -> None:
        """Adds the evictions that wait and whether all are held, which are read with the metrics."""
        self._evictions_paused.set_function(lambda: len(evictions().paused))
        self._evictions_held.set_function(lambda: evictions().hold is not None)

    def watch_outages(self, outages: Outages) -> None:
        """Adds the duration of the longest outage, which is computed when metrics are read."""
        self._outage.set_function(outages.longest_s)

    def watch_short_lists(self, short_lists: ShortLists) -> None:
        """Adds the number of objects that short lists lack, which is computed when metrics are read."""
        self._short.set_function(lambda: sum(len(found.missing) for found in short_lists.held.values()))

    def outcome(self, intent: Intent, outcome: Event) -> None:
        """Counts the outcome of an intent."""
        self._outcomes.labels(type(intent).__name__, type(outcome).__name__).inc()

    def refused(self, context: str, intent: str) -> None:
        """Counts an intent that its context may not carry."""
        self._refused.labels(context, intent).inc()

    def listed(self, resource: str) -> None:
        """Counts a complete list of a resource."""
        self._lists.labels(resource).inc()
