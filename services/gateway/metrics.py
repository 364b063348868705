"""Prometheus counters of the gateway."""

from prometheus_client import CollectorRegistry, Counter

from services.gateway.effects.intent_types import Intent
from shared.events import Event


class GatewayMetrics:
    """Counters in a service's registry."""

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
            "Complete lists; more than one a resource means a watch was too old",
            ("resource",),
            registry=registry,
        )

    def outcome(self, intent: Intent, outcome: Event) -> None:
        """Counts the outcome of an intent."""
        self._outcomes.labels(type(intent).__name__, type(outcome).__name__).inc()

    def refused(self, context: str, intent: str) -> None:
        """Counts an intent that its context may not carry."""
        self._refused.labels(context, intent).inc()

    def listed(self, resource: str) -> None:
        """Counts a complete list of a resource."""
        self._lists.labels(resource).inc()
